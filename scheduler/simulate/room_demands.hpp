// What the stages of a plan want of their devices' room in a schedule of phases.
//
// Pure. Helper of memory_bounds.cpp; what crosses between encoders and llm also of
// layout_score.cpp.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/sample_pieces.hpp"
#include "scheduler/iteration/redistribution.hpp"
#include "scheduler/simulate/room_division.hpp"

namespace troupe::scheduler {

/// Of a stage's microbatches the one that keeps most.
struct LargestMicrobatch {
  double bytes = 0;
  double offloaded = 0;  ///< Of these.
  std::size_t microbatch = 0;
};

/// What goes between encoders and llm: rows on the way there, gradients on the way back.
enum class Crossing : std::uint8_t { rows, gradients };

/// Bytes of the outputs of these modules for a microbatch of `list`, or of the gradients of those
/// that want some; whether some want one. `bytes_per_element`: on one rank. `flow`: of all units.
/// REQUIRES: a microbatch.
RowBytes crossing_bytes(const ModelGraph& model, const RowFlow& flow, double bytes_per_element,
                        const std::vector<ModuleId>& modules, Crossing crossing,
                        const MicrobatchList& list);

/// Replicas that exchange rows or share devices, directly or by others, and so have their windows
/// in common.
struct WindowSet {
  std::size_t number = 0;  ///< A replica of the set, the same for all of it.
  /// Microbatches that windows cannot be narrower than, so that all that is encoded in one is
  /// trained in it (`phase_windows`). 1 where each microbatch of the llm has all its samples in one
  /// place of encoders' lists, and the next one not before it; more where samples are deferred, or
  /// pieces or samples encoded in other rounds.
  std::int32_t least_width = 1;
  std::int32_t encoded = 0;  ///< Microbatches of a step, on the replica that encodes most.
};

/// Per replica. `flow`: of `units`. Cost: O(units + replicas x microbatches).
std::vector<WindowSet> window_sets(const ParallelPlan& plan, const RowFlow& flow,
                                   const SampleUnits& units,
                                   const std::vector<MicrobatchList>& microbatches);

/// Per device, without what leaves it. `largest`: per stage; what the llm keeps has the rows that
/// come for it in it. `sets`: per replica.
///
/// Rows that wait for the llm until it has been through a window count with each of the window's
/// microbatches, or the gradients that come for encoders: for as many microbatches of the llm as
/// windows of a step have on average.
std::vector<RoomDemand> room_demands(const ParallelPlan& plan, const RowFlow& flow,
                                     double bytes_per_element,
                                     const std::vector<LargestMicrobatch>& largest,
                                     const std::vector<MicrobatchList>& microbatches,
                                     const std::vector<WindowSet>& sets);

}  // namespace troupe::scheduler
