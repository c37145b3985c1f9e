// What the stages of a plan want of their devices' room in a schedule of phases, and whether the
// cut of a step lets them divide it.
//
// Pure. Helper of memory_bounds.cpp; what crosses between encoders and llm also of
// layout_score.cpp.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
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
/// that want some. `bytes_per_element`: on one rank. `flow`: of all units. REQUIRES: a microbatch.
RowBytes crossing_bytes(const ModelGraph& model, const RowFlow& flow, double bytes_per_element,
                        const std::vector<ModuleId>& modules, Crossing crossing,
                        const MicrobatchList& list);

/// Per device, without what leaves it. `largest`: per stage; what the llm keeps has the rows that
/// come for it in it.
std::vector<RoomDemand> room_demands(const ParallelPlan& plan, const RowFlow& flow,
                                     double bytes_per_element,
                                     const std::vector<LargestMicrobatch>& largest,
                                     const std::vector<MicrobatchList>& microbatches);

/// Whether windows never have to become one (`phase_windows`), however wide they are: all encoders
/// have the samples of a microbatch of the llm in one place of their lists, and those of the next
/// one not before it. Cost: O(samples).
bool keep_windows_apart(const ParallelPlan& plan, const std::vector<MicrobatchList>& microbatches);

}  // namespace troupe::scheduler
