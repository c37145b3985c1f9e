// Whether decoded content comes to every stage that reads it on a node that does not see it.
//
// Pure. Looks at where modules begin and end for every sample; does not share code with the planner
// of deliveries.

#pragma once

#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "scheduler/check/fault.hpp"

namespace troupe::scheduler {

/// Faults of the deliveries: ends, devices or samples that do not exist, content left out, brought
/// twice or for no reason, sent by a node that does not decode it, wrong sizes.
///
/// REQUIRES: sound microbatches.
/// Cost: O(n log n), n = samples x modules + samples of deliveries.
std::vector<Fault> delivery_faults(const ParallelPlan& plan, const IterationPlan& iteration);

}  // namespace troupe::scheduler
