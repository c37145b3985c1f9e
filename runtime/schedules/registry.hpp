// All pipeline schedules that a job can name: the built-in ones of
// scheduler/iteration/schedules.hpp, and those that a program or plug-in adds.
//
// A schedule of one's own orders the tasks of a step on each device: forwards, backwards and weight
// gradients of stages, as a graph that says what needs what (scheduler/iteration/task_graph.hpp).
// It never touches training: what it returns is executed on paper first, and the plan made from it
// is proven by `scheduler::check`.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "scheduler/iteration/schedules.hpp"

namespace troupe::schedules {

using scheduler::DeviceOrders;
using scheduler::order_devices;
using scheduler::OwnSchedule;
using scheduler::Task;
using scheduler::TaskGraph;
using scheduler::TaskKind;

/// Adds a schedule for the rest of the process. Its name as `scheduler.schedule` says it: small
/// letters, digits, `-` and `_`. Call it before a job is read. Thread-safe.
/// Errors: invalid_argument: a name that is taken or not spelled so, or no function.
Status register_schedule(OwnSchedule schedule);

/// Built-in ones first, then in the order in which they came.
std::vector<std::string> schedule_names();

/// The schedule of that name; where there is none, a built-in one that `make_schedule` refuses.
scheduler::Schedule find_schedule(const std::string& name);

}  // namespace troupe::schedules
