// What encoders keep for their backwards goes to host memory while a device does something else.
//
// Pure. Between the phases of a schedule (heterogeneous parallelism, section 3.3) an encoder's
// activations are of no use, and the llm has the device.

#pragma once

#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::scheduler {

/// Adds `offload` and `fetch` to lists that hold compute and transfers alone, per device. A part of
/// an encoder's stage is offloaded where a device computes something else between its forward and
/// its backward; else nothing would have the memory meanwhile. `offload` stands behind the forward
/// and what that sends, `fetch` before what the backward receives, so that a device which waits for
/// a gradient moves bytes first. Devices of a grid that run several lists do the same in each.
///
/// Cost: O(actions log actions).
void add_offloads(const ParallelPlan& plan, std::vector<std::vector<Action>>& actions);

}  // namespace troupe::scheduler
