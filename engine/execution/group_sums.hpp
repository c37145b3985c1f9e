// One device's part in adding up the gradients of parameter groups over their holders
// (runtime/vocabulary/gradient_sum.hpp): gives chunks away, adds up its own, takes sums back.
//
// Owned by one executor. Nothing here waits: `arrivals_of` says what must have come. What adds and
// copies is called in work of the device and deals in its tensors.

#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "engine/execution/tensor_mailbox.hpp"
#include "engine/iteration/reports.hpp"
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

  /// Every other owner's chunk of this device's gradients.
  std::vector<Parcel> send(GroupId group);

  /// Adds this device's chunk up in the order of holders, whoever came first: the sum for all other
  /// holders. `others`: what `arrivals_of` names, in that order; let go of one by one.
  std::vector<Parcel> reduce(GroupId group, std::vector<at::Tensor> others);

  /// The norm of the chunk that `reduce` has added up. On its own, so that nobody waits for it.
  GroupNorm measure(GroupId group);

  /// Puts the other owners' sums beside its own, where it has one. `sums`: what `arrivals_of`
  /// names, in that order; let go of one by one.
  void receive(GroupId group, std::vector<at::Tensor> sums);

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
  at::Tensor own_chunk_of(GroupId group);

  const ParallelPlan& plan_;
  Gradients gradients_;
  std::vector<Part> parts_;
};

}  // namespace troupe::engine
