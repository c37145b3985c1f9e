// Parameters of encoders go to host memory while the llm has their device.
//
// Pure. Between the phases of a schedule (heterogeneous parallelism, section 3.3) a colocated
// encoder's parameters are of as little use as its activations.

#pragma once

#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::scheduler {

/// Adds `evict_parameters` and `fetch_parameters` to lists that hold compute and transfers alone,
/// per device, for stages whose parameters are in host memory (`parameters_in_host`). They are on
/// the device when a list begins and when it ends, and whenever their stage computes; they are not
/// while a stage computes that has its own there for good. They leave behind the stage's last
/// compute and what that sends, and come back before what its next one receives, so that a device
/// which waits for rows moves bytes first. Each list of a grid does this by itself.
///
/// Cost: O(actions x stages of a device).
void add_parameter_moves(const ParallelPlan& plan, std::vector<std::vector<Action>>& actions);

}  // namespace troupe::scheduler
