// Whether the input of a simulation can be simulated: what it indexes with exists, what it computes
// with is finite. Helper of simulate_plan.cpp.
//
// Pure.

#pragma once

#include "runtime/vocabulary/result.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::scheduler {

/// Errors: the invalid_argument of `simulate`.
Status check_simulation(const ParallelPlan& plan, const IterationPlan& iteration,
                        const SimulationCosts& costs, const SimulationOptions& options);

/// The internal of `simulate`: a device whose next action never begins.
Error stands_still(const ParallelPlan& plan, DeviceId device, const Action& action);

}  // namespace troupe::scheduler
