// The layouts that `auto_layout` compares, before any is simulated, and why there are none.
//
// Pure. Helper of auto_layout.cpp.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/layout/layout_score.hpp"
#include "scheduler/layout/layout_shapes.hpp"

namespace troupe::scheduler {

/// One way to lay out the model on the whole cluster: copies of the whole model, which are
/// pipelines, or of module groups with numbers of replicas of their own. Copies of equal size have
/// one shape.
struct LayoutCandidate {
  std::vector<Parallelism> parallelisms;  ///< Per module.
  std::vector<PipelineShape> shapes;      ///< Of pipelines, or of each group: one, or two sizes.
  std::vector<std::size_t> shape_of;      ///< Per copy: index into `shapes`.
  std::shared_ptr<const LayerWeights> weights;
  double estimate_ms = 0;  ///< Longest path, slowest device for all other microbatches, reduction.
  bool may_fit = true;     ///< With as many microbatches in flight as the schedule needs.
  /// Empty, as `numbers`, where copies are pipelines. The llm's group is the last one; copies stand
  /// in the order of groups.
  std::vector<std::vector<ModuleId>> module_groups = {};
  std::vector<std::int32_t> numbers = {};  ///< Replicas of each group.
  bool colocated = false;                  ///< Then encoders' copies stand on the llm's devices.

  /// Copies of the llm: among them the samples of a step are shared out.
  std::int32_t pipelines() const {
    return numbers.empty() ? static_cast<std::int32_t>(shape_of.size()) : numbers.back();
  }
  /// Groups that a stage may be on, of all copies; where colocated those of both sides.
  std::int32_t groups() const {
    std::int32_t count = 0;
    for (const auto shape : shape_of) count += shapes[shape].devices;
    return count;
  }
};

/// Where the copies of module groups stand: groups of devices, and on each a place for the llm, or
/// for as many stages of encoders as it is wider than theirs.
struct CopyPlaces {
  std::int32_t groups = 0;
  std::int32_t per_group = 1;       ///< Places of encoders; 1 where nothing is colocated.
  std::size_t first_llm = 0;        ///< Copies from here on are the llm's.
  std::vector<std::int32_t> first;  ///< Per copy: the place of its first stage.

  std::int32_t place_of(std::size_t copy, std::int32_t stage) const {
    return first[copy] + stage * (copy < first_llm ? 1 : per_group);
  }
  std::int32_t group_of(std::size_t copy, std::int32_t stage) const {
    return place_of(copy, stage) / per_group;
  }
};

/// Copies stand one behind the other; colocated encoders of each group anew from the first place
/// on, spread evenly over all.
/// REQUIRES: a candidate with numbers; where colocated, the llm's width is a multiple of the
/// encoders'.
CopyPlaces copy_places(const LayoutCandidate& candidate);

/// A candidate as a checked plan.
struct PlacedCandidate {
  HandLayout layout;
  ParallelPlan plan;
};

/// Consecutive devices of a node that one stage, or stages of several modules, are on.
struct DeviceGroup {
  NodeId node;
  std::int32_t first = 0;  ///< Local index.
  std::int32_t count = 1;

  friend bool operator==(const DeviceGroup&, const DeviceGroup&) = default;
};

/// True if those modules of a pipeline or replica that have a pinned number of stages have it.
bool keeps_pins(const AutoLayoutRequest& request, const PipelineShape& shape,
                const LayerWeights& weights);

/// Candidates that keep the pins, those that may fit first, then by estimate; the best `per_choice`
/// for each number of pipelines and degrees, and the best of each form. Sizes of pipelines that
/// cannot come below `worth` (>= 1) times the least estimate are left out; infinity: none.
///
/// Errors:
/// - infeasible, not_found: as `auto_layout`, whatever needs no simulation.
Result<std::vector<LayoutCandidate>> layout_candidates(const AutoLayoutRequest& request,
                                                       LayoutScorer& scorer, std::size_t per_choice,
                                                       double worth);

/// Devices of each stage's group of a candidate, copy by copy. Wider groups take devices first, so
/// that powers of two leave no holes; where failures are to be survived, pipelines share no node.
/// Groups of colocated encoders are parts of the llm's.
///
/// Errors: infeasible where the groups do not fit into the nodes.
Result<std::vector<DeviceGroup>> device_groups(const AutoLayoutRequest& request,
                                               const LayoutCandidate& candidate);

/// Errors: as `device_groups`, `place_by_hand`.
Result<PlacedCandidate> place(const AutoLayoutRequest& request, const LayoutCandidate& candidate);

}  // namespace troupe::scheduler
