// One device's part in adding up the gradients of parameter groups over their holders
// (runtime/vocabulary/gradient_sum.hpp): gives chunks away, adds up its own, takes sums back.
//
// Owned and called by one executor. Nothing here waits: `arrivals_of` says what must have come.

#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "engine/reports.hpp"
#include "engine/tensor_mailbox.hpp"
#include "runtime/vocabulary/gradient_sum.hpp"

namespace troupe::engine {

class GroupSums {
 public:
  /// The flat gradients of a use of a group on this device, by its place among the group's uses; of
  /// none where the device is on standby for the group.
  using Gradients = std::function<at::Tensor&(GroupId group, std::optional<std::size_t> use)>;

  /// `plan` outlives this.
  GroupSums(const ParallelPlan& plan, DeviceId device, Gradients gradients);

  /// What `reduce` or `reduce_receive` of a group takes from other devices.
  std::vector<Arrival> arrivals_of(const Action& action, at::ScalarType dtype) const;

  /// Gives every other owner its chunk of this device's gradients.
  void send(GroupId group, TensorMailbox& mailbox);

  /// Adds this device's chunk up in the order of holders, whoever came first, gives it to all
  /// others and returns its norm. REQUIRES: its arrivals are there.
  GroupNorm reduce(GroupId group, TensorMailbox& mailbox);

  /// Puts the other owners' sums beside its own, where it has one. REQUIRES: its arrivals are
  /// there.
  void receive(GroupId group, TensorMailbox& mailbox);

 private:
  /// What the plan says of one group, worked out once.
  struct Part {
    SumRole role;
    std::vector<SumChunk> chunks;
    std::int32_t own_chunk = -1;
  };

  transport::Peer peer(const ParameterGroup& group, std::int32_t holder) const;
  at::Tensor& add_up_uses(GroupId group);
  at::Tensor& sum_of(GroupId group);

  const ParallelPlan& plan_;
  Gradients gradients_;
  std::vector<Part> parts_;
};

}  // namespace troupe::engine
