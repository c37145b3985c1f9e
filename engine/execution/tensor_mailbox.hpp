// Moves tensors between the devices of an iteration: over the transport, in host memory, between
// devices, or by calls to NCCL; by handle within one. Keeps the sum of posted receives within a
// bound.
//
// Owned by one executor and called by its thread; only `wake` is called from the transport.

#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/execution/device.hpp"
#include "engine/execution/staged_sends.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"
#include "transport/transport.hpp"

namespace troupe::engine {

class RowCalls;

/// A tensor that this device expects: which one, from whom, and its size, all from the plan.
struct Arrival {
  struct Key {
    transport::TagKind kind = transport::TagKind::rows;
    std::uint64_t index = 0;  ///< MessageId, or group, chunk and holder.

    friend auto operator<=>(const Key&, const Key&) = default;
  };
  Key key;
  transport::Peer from = -1;
  bool local = false;  ///< Handed over on this device; nothing to post.
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

/// A contiguous tensor on its way to another device, whose work has completed.
struct Parcel {
  Arrival::Key key;
  transport::Peer to = -1;
  at::Tensor tensor;     ///< This device's, or in host memory.
  DeviceId called = {};  ///< It goes by a call to this device.
  bool in_host = false;  ///< It lies in host memory, also where devices have their own.
};

/// Bytes of those that are not local.
Bytes bytes_to_post(const std::vector<Arrival>& arrivals);

class TensorMailbox {
 public:
  /// Receives into host memory of `device`, but what goes by `calls`, where there are any. All
  /// outlive the mailbox.
  TensorMailbox(transport::Transport& transport, Device& device, EpochNumber epoch_number,
                std::function<void()> wake, RowCalls* calls = nullptr);

  /// Forgets everything and numbers the following messages by `step`. Posted receives that were not
  /// taken will not exceed `receive_bound`, unless a single `post` does.
  void begin(std::int64_t step, Bytes receive_bound);

  /// Posts these receives if the bound has room for all of them or nothing is outstanding; returns
  /// whether it did. Local arrivals need no room. `caller`: they come by calls, from this device
  /// and into memory of this one; invalid: as messages. Errors: as `RowCalls::receive`.
  Result<bool> post(const std::vector<Arrival>& arrivals, DeviceId caller = {});

  /// Sends without waiting; a failure shows at the next `check`. What a device stages
  /// (`Device::staging`) leaves with `check`, as far as receivers have posted.
  void send(const Parcel& parcel);

  /// A place for a tensor of so many bytes that work fills, and later work takes (`take`), both on
  /// this device, which keeps their order.
  std::shared_ptr<at::Tensor> put(Arrival::Key key, Bytes bytes);

  /// Whether all of these are there, or the error that keeps one away.
  Result<bool> arrived(const std::vector<Arrival>& arrivals) const;

  /// Hands over a tensor, once: one from another device in host memory, one of this device for work
  /// to look into. REQUIRES: it has arrived. It counts as received, and as held, until `release`.
  std::shared_ptr<at::Tensor> take(Arrival::Key key);

  /// The work that took it has completed.
  void release(Arrival::Key key);

  /// Sends what can leave. The first failure of a send, if any; forgets completed sends.
  Status check();

  /// The copy of what leaves that failed, if any: nobody gets it.
  std::shared_ptr<const Launch> failed_copy() const;

  /// A copy of what leaves that has not completed, if any.
  std::shared_ptr<const Launch> copy_under_way() const;

  /// Forgets sends that ended, well or not.
  void forget_ended_sends();

  /// Nothing is on its way out any more.
  bool all_sent() const { return sends_.empty() && (!staged_ || staged_->empty()); }

  Bytes peak() const { return peak_; }
  Bytes bound() const { return receive_bound_; }

  /// Rows and gradients that are there and no stage has yet: what deferral holds back.
  Bytes held() const;

  /// Whether this is there, or is known not to come; not before it was posted.
  bool has(const Arrival& arrival) const;

 private:
  struct Posted {
    std::shared_ptr<at::Tensor> tensor;
    std::vector<transport::Operation> operations;  ///< Of its pieces.

    bool has_ended() const;
    Result<bool> has_come() const;  ///< Or why one of them does not come.
  };
  struct Local {
    std::shared_ptr<at::Tensor> tensor;
    Bytes bytes;
  };
  Result<Posted> receive(const Arrival& arrival, DeviceId caller);
  Posted receive_pieces(const Arrival& arrival, at::Tensor host);
  bool is_staged(transport::TagKind kind) const;
  transport::Operation begin_send(const Parcel& parcel);
  transport::Tag tag_of(const Arrival::Key& key) const;

  /// What was taken counts until it is released.
  struct Taken {
    Bytes received;
    Bytes held;
  };

  transport::Transport& transport_;
  Device& device_;
  EpochNumber epoch_number_;
  std::function<void()> wake_;
  RowCalls* calls_;
  std::int64_t step_ = 0;
  Bytes receive_bound_;
  std::map<Arrival::Key, Posted> posted_;
  std::map<Arrival::Key, Local> local_;
  std::map<Arrival::Key, Taken> taken_;
  std::vector<transport::Operation> sends_;
  std::unique_ptr<StagedSends> staged_;  ///< None where tensors lie in host memory anyway.
  Bytes outstanding_;
  Bytes peak_;
};

}  // namespace troupe::engine
