// Whether calls of all holders of a group to NCCL (`is_by_nccl`) come to their end in the order in
// which devices enter them.
//
// Pure. Helper of check_plan.cpp.

#pragma once

#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "scheduler/check/fault.hpp"

namespace troupe::scheduler {

/// A device runs its calls one after the other, each when all holders have come to it: two devices
/// that enter two calls in different orders wait for each other for ever, and so may more of them.
/// One deadlock for each device that cannot go on. REQUIRES: each action stands where it must, and
/// once. Cost: linear in actions.
std::vector<Fault> call_order_faults(const ParallelPlan& plan, const IterationPlan& iteration);

}  // namespace troupe::scheduler
