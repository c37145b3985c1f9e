// What stages take for the parts of given microbatches: each part is summed once for a stage,
// however often it is asked for.
//
// Pure.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "scheduler/cost/sample_costs.hpp"

namespace troupe::scheduler {

/// Per stage: its layers, as `SampleCosts::part` takes them. REQUIRES: costs at the degrees of all
/// stages were asked for.
std::vector<std::vector<AlikeLayers>> layers_of_stages(const ParallelPlan& plan,
                                                       const SampleCosts& samples);

/// The sums of one plan's parts. Immutable, hence thread-safe.
class PartSums {
 public:
  /// REQUIRES: as `layers_of_stages`, and as `plan_iteration` of microbatches. Cost: what all parts
  /// take to ask for, on each stage once.
  PartSums(const ParallelPlan& plan, const SampleCosts& samples,
           const std::vector<MicrobatchList>& microbatches);

  /// As `SampleCosts::part` of the stage's layers, to the bit. REQUIRES: a part of the stage's
  /// replica.
  const PassCosts& operator()(StageId stage, const std::vector<std::int32_t>& part) const {
    const auto first = static_cast<std::size_t>(part.front());
    return costs_[stage.index()][numbers_[groups_[stage.index()]][first]];
  }

 private:
  /// Per group: the number of a part in its replica, by its first sample. That tells a part, as a
  /// sample stands in one part of each group.
  std::vector<std::vector<std::size_t>> numbers_;
  std::vector<std::size_t> groups_;            ///< Per stage.
  std::vector<std::vector<PassCosts>> costs_;  ///< Per stage, by that number.
};

}  // namespace troupe::scheduler
