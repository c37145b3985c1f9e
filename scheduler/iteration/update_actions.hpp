// The end of a device's list behind `commit`: its updates, and the state that comes from host
// memory for them.
//
// Pure.

#pragma once

#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::scheduler {

/// Appends the updates of a layout to its lists, per device: for each stage that trains, then for
/// what the device is on standby for. Groups whose moments are in host memory come first, one after
/// the other: `fetch_state`, an `optimizer_step` of this group alone, `offload_state`, so that a
/// device has the moments of one at a time. All others follow in one `optimizer_step`. A group that
/// several stages of a device use is the first one's.
///
/// Cost: O(uses of groups x devices of a grid).
void append_updates(const ParallelPlan& plan, std::vector<std::vector<Action>>& actions);

}  // namespace troupe::scheduler
