// Lanes of the named schedules: a stage's tasks in the order that a schedule demands.
//
// Pure. Helpers of schedules.cpp.

#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/iteration/list_schedule.hpp"
#include "scheduler/iteration/task_graph.hpp"

namespace troupe::scheduler {

/// Tasks of one microbatch on one stage, parts in order.
struct MicrobatchTasks {
  std::vector<std::int32_t> forward;
  std::vector<std::int32_t> backward;  ///< `backward` or `backward_input`.
  std::vector<std::int32_t> weight;
};

/// Per stage, the microbatches that have work there, in order.
std::vector<std::vector<MicrobatchTasks>> tasks_by_stage(const TaskGraph& graph);

/// `warm_up` forwards, then one backward and one forward in turn, then the backwards that are left.
/// With `defer`, only first parts; others get lanes of their own. Weight gradients have a lane of
/// their own, too.
std::vector<Lane> one_forward_one_backward(const std::vector<MicrobatchTasks>& microbatches,
                                           std::int32_t warm_up, bool defer);

/// Forwards, backwards and weight gradients in lanes of their own, deferred parts apart.
std::vector<Lane> free_lanes(const std::vector<MicrobatchTasks>& microbatches);

/// The graph with barriers: no llm task before the encoder forwards of its group, no encoder
/// backward before the llm tasks of its group, of the same window each; and on a device of the llm
/// no encoder forward before the llm tasks of the window before. `group_of_stage` counts from 0, as
/// `window_of_task` (`phase_windows`). Barriers are tasks with an index of at least
/// `graph.tasks.size()`, on devices of their own.
TaskGraph with_phases(const TaskGraph& graph, const std::vector<std::int32_t>& group_of_stage,
                      const std::vector<std::int32_t>& window_of_task);

/// A stage's microbatches by window, in order; each microbatch is in the window of its first task.
std::vector<std::vector<MicrobatchTasks>> by_window(
    const std::vector<MicrobatchTasks>& microbatches,
    const std::vector<std::int32_t>& window_of_task);

/// Number of the part that each stage belongs to: stages of a part exchange rows or share devices,
/// itself or by others of it.
std::vector<std::int32_t> connected_parts(const TaskGraph& graph);

}  // namespace troupe::scheduler
