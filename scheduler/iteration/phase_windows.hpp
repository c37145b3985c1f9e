// Windows of microbatches: where memory is too short for the encoder forwards of a whole batch, a
// schedule of phases runs its phases over one window after the other.
//
// Source: heterogeneous parallelism, section 3.3 (three phases); windows are ours. Pure. Helper of
// schedules.cpp.

#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/iteration/task_graph.hpp"

namespace troupe::scheduler {

/// Per task its window, from 0. An encoder's microbatch is in window number / width. What the llm
/// does is in the last window of what it needs and of the microbatches before it on its stage, so
/// that text alone waits for nothing. Windows become one where an encoder's backward needs llm work
/// of a later one, as deferred samples have it: no window waits for one behind it.
///
/// `part_of_stage`: which stages have phases in common (`connected_parts`); windows of a part are
/// its own. `widths`: per part, microbatches of a window; 0: all of them. Cost: O(tasks log tasks +
/// dependencies x windows). REQUIRES: no circle in the graph.
std::vector<std::int32_t> phase_windows(const TaskGraph& graph,
                                        const std::vector<std::int32_t>& part_of_stage,
                                        const std::vector<std::int32_t>& widths);

}  // namespace troupe::scheduler
