// Whether the messages of an iteration move exactly the rows that must move.
//
// Pure. Walks every sample through the layers of its modules; does not share code with the planner
// of messages.

#pragma once

#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "scheduler/check/fault.hpp"

namespace troupe::scheduler {

/// Faults of the messages: ends or samples that do not exist, rows left out, moved twice or for no
/// reason, wrong sizes, wrong `has_backward`.
///
/// REQUIRES: each sample stands in one part per side.
/// Cost: O(n log n), n = rows of messages counted in samples + samples x layers.
std::vector<Fault> message_faults(const ParallelPlan& plan, const IterationPlan& iteration);

}  // namespace troupe::scheduler
