// Moves tensors between the devices of an iteration: over the transport between devices, by handle
// within one. Keeps the sum of posted receives within a bound.
//
// Owned by one executor and called by its thread; only `wake` is called from the transport.

#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <functional>
#include <map>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"
#include "transport/transport.hpp"

namespace troupe::engine {

/// A tensor that this device expects: which one, from whom, and its size, all from the plan.
struct Arrival {
  struct Key {
    transport::TagKind kind = transport::TagKind::rows;
    std::uint64_t index = 0;  ///< MessageId, or group and two of its holders.

    friend auto operator<=>(const Key&, const Key&) = default;
  };
  Key key;
  transport::Peer from = -1;
  bool local = false;  ///< Handed over on this device; nothing to post.
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

/// Bytes of those that are not local.
Bytes bytes_to_post(const std::vector<Arrival>& arrivals);

class TensorMailbox {
 public:
  TensorMailbox(transport::Transport& transport, EpochNumber epoch_number,
                std::function<void()> wake);

  /// Forgets everything and numbers the following messages by `step`. Posted receives that were not
  /// taken will not exceed `receive_bound`, unless a single `post` does.
  void begin(std::int64_t step, Bytes receive_bound);

  /// Posts these receives if the bound has room for all of them or nothing is outstanding; returns
  /// whether it did. Local arrivals need no room.
  Result<bool> post(const std::vector<Arrival>& arrivals);

  /// Sends without waiting; a failure shows at the next `take` or `check`.
  void send(Arrival::Key key, transport::Peer to, const at::Tensor& tensor);

  /// Hands a tensor to a later `take` on this device.
  void put(Arrival::Key key, at::Tensor tensor);

  /// Whether all of these are there, or the error that keeps one away.
  Result<bool> arrived(const std::vector<Arrival>& arrivals) const;

  /// Hands over a tensor, once. REQUIRES: it has arrived.
  at::Tensor take(Arrival::Key key);

  /// The first failure of a send, if any; forgets completed sends.
  Status check();

  /// Forgets sends that ended, well or not.
  void forget_ended_sends();

  /// Nothing is on its way out any more.
  bool all_sent() const { return sends_.empty(); }

  Bytes peak() const { return peak_; }
  Bytes bound() const { return receive_bound_; }

  /// Rows and gradients that are there and were not taken yet: what deferral holds back.
  Bytes held() const;

 private:
  struct Posted {
    at::Tensor tensor;
    transport::Operation operation;
  };

  transport::Transport& transport_;
  EpochNumber epoch_number_;
  std::function<void()> wake_;
  std::int64_t step_ = 0;
  Bytes receive_bound_;
  std::map<Arrival::Key, Posted> posted_;
  std::map<Arrival::Key, at::Tensor> local_;
  std::vector<transport::Operation> sends_;
  Bytes outstanding_;
  Bytes peak_;
};

}  // namespace troupe::engine
