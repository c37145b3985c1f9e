// One device's part in adding up the gradients of parameter groups over their holders
// (runtime/vocabulary/gradient_sum.hpp): gives chunks away, adds up those of its node and its own,
// takes sums back and hands them on.
//
// Owned by one executor. Nothing here waits: `arrivals_of` says what must have come. What adds and
// copies is called in work of the device and deals in its tensors.

#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/execution/tensor_mailbox.hpp"
#include "engine/iteration/reports.hpp"
#include "runtime/vocabulary/gradient_sum.hpp"
#include "runtime/vocabulary/model_state.hpp"

namespace troupe::engine {

/// What a device has measured of a group's sum.
struct MeasuredChunk {
  GroupId group;
  std::int32_t chunk = 0;
  at::Tensor numbers;  ///< `state::range_numbers`: the device's, or on their way to host memory.
};

/// REQUIRES: the numbers are in host memory, and have arrived there.
GroupNorm norm_of(const MeasuredChunk& measured);

class GroupSums {
 public:
  /// The flat gradients of a use of a group on this device, by its place among the group's uses; of
  /// none where the device is on standby for the group.
  using Gradients = std::function<at::Tensor&(GroupId group, std::optional<std::size_t> use)>;

  /// `plan` outlives this.
  GroupSums(const ParallelPlan& plan, DeviceId device, Gradients gradients);

  /// What an action of a group's sum takes from other devices; of `reduce_send` nothing.
  std::vector<Arrival> arrivals_of(const Action& action, at::ScalarType dtype) const;

  /// What sends it: of each arrival its own, in their order.
  std::vector<AwaitedMessage> senders_of(const Action& action) const;

  /// Whether all holders of the group call for its sum together (sum_calls.hpp): then `send` makes
  /// what the device enters, nothing is sent, and nothing arrives.
  bool is_call(GroupId group) const { return parts_[group.index()].sum.is_call; }
  /// What it enters, and what becomes the sum.
  at::Tensor& entered(GroupId group) { return sum_of(group); }
  /// Whether it has a chunk of a group's sum to measure.
  bool measures(GroupId group) const { return parts_[group.index()].role.own_chunk >= 0; }

  /// This device's gradients of each chunk that others add up.
  std::vector<Parcel> send(GroupId group);

  /// Adds up, over the holders of its node and in their order, the chunks that it does so for:
  /// a sum for each of their owners. `others`: what `arrivals_of` names, in that order; let go of
  /// one by one.
  std::vector<Parcel> reduce_partial(GroupId group, std::vector<at::Tensor> others);

  /// Adds this device's chunk up in the order of the group, whoever came first: the sum for all
  /// other holders, or for those who hand it on. `others` as above.
  std::vector<Parcel> reduce(GroupId group, std::vector<at::Tensor> others);

  /// The norm of the chunk that `reduce` has added up, on the device. On its own, so that nobody
  /// waits for it.
  /// `left_out`: elements of the group that count in no norm (`GroupState::own_updates`).
  MeasuredChunk measure(GroupId group, std::span<const IndexRange> left_out = {});

  /// Keeps sums of other owners and gives them to the other holders of its node. `sums`: what
  /// `arrivals_of` names, in that order; let go of one by one.
  std::vector<Parcel> relay(GroupId group, std::vector<at::Tensor> sums);

  /// Puts the other sums beside its own, where it has one. `sums` as above.
  void receive(GroupId group, std::vector<at::Tensor> sums);

 private:
  /// What the plan says of one group, worked out once.
  struct Part {
    SumRole role;
    GroupSum sum;  ///< Without the roles of others.
  };
  /// Gradients of others that a sum takes, one after the other.
  class Taken;

  Parcel parcel(GroupId group, transport::TagKind kind, const SumTransfer& transfer,
                at::Tensor tensor) const;
  at::Tensor add_up_branch(const Part& part, std::size_t branch, const at::Tensor& own,
                           Taken& others) const;
  at::Tensor& add_up_uses(GroupId group);
  at::Tensor& sum_of(GroupId group);
  at::Tensor chunk_of(GroupId group, std::size_t chunk);

  const ParallelPlan& plan_;
  Gradients gradients_;
  std::vector<Part> parts_;
};

}  // namespace troupe::engine
