// Where the sums of gradients stand in the lists of an iteration, before `commit`.
//
// Pure.

#pragma once

#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::scheduler {

/// Puts the sums of all groups into lists that have all their compute, per device. A `reduce_send`
/// stands behind the last backward of the device's stages that use its group; all other actions of
/// sums stand last, by kind (`kSumActions`), each kind in group order.
///
/// Calls to NCCL (`is_by_nccl`) are entered in one order on all devices, by how much backward the
/// busiest holder has left behind its gradients: one may be entered later than its gradients are
/// complete. A group with holders on standby, who have no gradients, is entered last, behind all
/// compute of each holder: sooner one would wait in the call for a whole step.
///
/// Cost: O(actions + sums * log(sums)).
void append_sums(const ParallelPlan& plan, std::vector<std::vector<Action>>& actions);

}  // namespace troupe::scheduler
