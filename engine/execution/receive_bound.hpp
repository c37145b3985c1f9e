// How many bytes of receives a device may have posted ahead: no more than its iteration plan lets
// it have in flight.
//
// Pure.

#pragma once

#include <span>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

/// The bound for `device`, whose action i receives `received[i]` bytes (0: nothing, or nothing from
/// other devices).
///
/// For each of its stages as many microbatches as the plan lets be in flight there, the largest
/// ones: the rows and gradients of their borders. And two reductions, the largest ones: one that is
/// summed and one on its way; and likewise of rows that only pass through the device. No single
/// action needs more.
///
/// Cost: O(actions log actions).
Bytes receive_bound(const IterationPlan& iteration, DeviceId device,
                    std::span<const Bytes> received);

}  // namespace troupe::engine
