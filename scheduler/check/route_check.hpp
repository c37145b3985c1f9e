// Whether the messages of each boundary take the route that the plan says.
//
// Pure. Does not share code with the planner of routes.

#pragma once

#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "scheduler/check/fault.hpp"

namespace troupe::scheduler {

/// Faults of routes: a boundary that the plan does not list, or lists twice or for no reason; rows
/// that take another route than their boundary's, or one though they stay on their devices or
/// inside their module group; a relay that is not the device through which the boundary's rows are
/// gathered, or one where they pass no other device.
///
/// REQUIRES: messages between existing stages and parts.
/// Cost: O(messages log boundaries).
std::vector<Fault> route_faults(const ParallelPlan& plan, const IterationPlan& iteration);

}  // namespace troupe::scheduler
