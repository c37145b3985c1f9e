// The named pipeline schedules: who may run ahead how far, and what goes first.
//
// Pure. Each is an instance of the list scheduler: lanes and bounds per stage.

#pragma once

#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "scheduler/list_schedule.hpp"
#include "scheduler/task_graph.hpp"

namespace troupe::scheduler {

/// Names that `make_schedule` knows, in the order of the interface page.
const std::vector<std::string>& schedule_names();

/// True if the schedule runs input and weight gradients as tasks of their own, so that the graph
/// must have `backward_input` and `backward_weight` instead of `backward`.
bool splits_weight_gradient(const std::string& name);

/// Orders the tasks of a graph by a named schedule.
///
/// - `1f1b`: a stage runs as many forwards as there are stages on its longest path to the sink,
///   then one backward and one forward in turn (heterogeneous parallelism, section 3.3). Where
///   samples are deferred to a later llm microbatch and that is not enough to go on, the stages
///   that wait get one more forward until it is.
///
/// Errors:
/// - invalid_argument: no such schedule; the nearest name is given.
Result<Timeline> make_schedule(const TaskGraph& graph, const std::string& name);

}  // namespace troupe::scheduler
