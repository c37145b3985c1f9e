// Rows and gradients between two devices that both call NCCL for, as a mailbox sees them: in the
// memory of the devices, without a way by their hosts.

#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"
#include "transport/transport.hpp"

namespace troupe::engine {

class RowCalls {
 public:
  virtual ~RowCalls() = default;

  /// Whether what this device sends another one goes by calls, and what it gets from it. The other
  /// one says the same.
  virtual bool sends_to(DeviceId other) const = 0;
  virtual bool receives_from(DeviceId other) const = 0;  ///< As above.

  /// Sends a contiguous tensor of this device that all its work is done with, to the `receive` of
  /// the same tag; it is held until nothing reads it. Does not wait; ends when it may be written
  /// over. Receives come to their turns in the order in which the other device posted them, however
  /// sends are ordered here: it needs them in that order. REQUIRES: `sends_to`.
  ///
  /// Errors of the operation: as `Transport::send`; timed_out: both ends have begun, and it hangs.
  virtual transport::Operation send(DeviceId to, const transport::Tag& tag, at::Tensor rows) = 0;

  /// What comes, and when it is there.
  struct Coming {
    at::Tensor rows;
    transport::Operation operation;
  };
  /// Posts a receive into memory of this device. REQUIRES: `receives_from`. Errors: infeasible:
  /// there is no room; transport_failed: the device is lost; of the operation, as of `send`.
  virtual Result<Coming> receive(DeviceId from, const transport::Tag& tag, at::IntArrayRef shape,
                                 at::ScalarType type) = 0;

  /// Ends what is under way, and with it the communicators: the next layout opens them anew.
  /// Nothing where all has ended.
  virtual void give_up() = 0;
};

}  // namespace troupe::engine
