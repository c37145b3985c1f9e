// Which rows move between stages for given samples and microbatches.
//
// Pure. The one place that decides whether a message exists, what it carries and whether a
// gradient comes back.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"

namespace troupe::scheduler {

/// Facts about samples and modules that decide where rows and gradients go.
class RowFlow {
 public:
  /// `samples`: of all units (`SampleUnits::shapes`).
  RowFlow(const ModelGraph& model, std::span<const SampleShape> samples);

  /// Rows of `module` for this sample: between its layers, or handed on.
  TokenCount hidden(ModuleId module, std::int32_t sample) const;
  TokenCount output(ModuleId module, std::int32_t sample) const;
  /// True if rows of this sample that leave `module` after `layers` of its layers depend on a
  /// trainable parameter, so that their gradient is wanted.
  bool wants_gradient(ModuleId module, std::int32_t layers, std::int32_t sample) const;
  /// True if this run trains something.
  bool trains(const LayerRun& run) const;

 private:
  struct ModuleFacts {
    std::vector<std::int32_t> trainable_before;  // Prefix counts: [layers + 1].
    std::vector<TokenCount> hidden, output;      // Per sample.
    std::vector<bool> gradient_in;               // Per sample: something before the module trains.
  };
  std::vector<ModuleFacts> modules_;
};

/// All messages of an iteration, by (source stage, microbatch, part), destination and module. See
/// `Message`; samples stand in the packing order of the source part. Rows of a piece go to the llm
/// part that its sample is in.
///
/// REQUIRES: the microbatches are sound (see `plan_iteration`).
std::vector<Message> plan_messages(const ParallelPlan& plan, const RowFlow& flow,
                                   const std::vector<MicrobatchList>& microbatches,
                                   const SampleUnits& units);

/// Where a unit is in a module group.
struct SamplePlace {
  ReplicaId replica;  ///< Invalid: nowhere.
  MicrobatchId microbatch;
  PartId part;
};

/// Per module group and unit. REQUIRES: a list per replica, units below `unit_count`.
std::vector<std::vector<SamplePlace>> sample_places(const ParallelPlan& plan,
                                                    const std::vector<MicrobatchList>& microbatches,
                                                    std::size_t unit_count);

}  // namespace troupe::scheduler
