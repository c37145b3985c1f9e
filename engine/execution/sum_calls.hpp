// Sums of gradients that all holders of a group call for together (`is_by_nccl`), as an executor
// sees them: it enters one, goes on, and looks later whether it has ended.

#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

class SumCalls {
 public:
  virtual ~SumCalls() = default;

  /// Enters the sum of a group with this device's `gradients`, a contiguous tensor that all work of
  /// the device is done with, and that becomes the sum. `on_done` is called when it has ended, from
  /// any thread. All holders enter the sums of a step in one order.
  virtual void enter(GroupId group, at::Tensor gradients, std::function<void()> on_done) = 0;

  /// Whether the sum that was entered has ended, once: from then on none is under way. Errors:
  /// transport_failed: a holder's node is lost, or NCCL lost one, or the device is. timed_out: it
  /// hangs, and nobody knows why. infeasible: the device has no room.
  virtual Result<bool> has_ended(GroupId group) = 0;

  /// Ends what is under way, and with it the groups: the next layout opens them anew. Tensors that
  /// were entered are held until nothing touches them. Nothing where all has ended.
  virtual void give_up() = 0;
};

}  // namespace troupe::engine
