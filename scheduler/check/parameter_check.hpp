// Whether parameters that go to host memory while the llm computes are there for their own stage.
//
// Pure. Follows each list from its begin to its end; shares no code with who decides the moves.

#pragma once

#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "scheduler/check/fault.hpp"

namespace troupe::scheduler {

/// Faults of `evict_parameters` and `fetch_parameters`: of a stage whose parameters stay, or that
/// the list does not serve; twice in a row; computing with parameters that are away; parameters on
/// the device while a stage computes that has its own there for good; parameters that are away at
/// `commit`, or move behind it.
///
/// REQUIRES: a list per device.
/// Cost: O(actions x stages of a device).
std::vector<Fault> parameter_faults(const ParallelPlan& plan, const IterationPlan& iteration);

}  // namespace troupe::scheduler
