// Moves bytes between the node processes of a job: the interface that every backend implements.
//
// Thread-safe: every function may be called from any thread, also from completion callbacks; none
// of them waits for a peer. Buffers are host memory, but that some backends send from a device's
// (`takes`). A transport owns no tensor and knows no plan.
//
// Who may talk: both sides call `connect` with the other's `address()`, exchanged by control
// messages. A message is matched by (peer, tag) to a receive; several with the same pair match in
// the order of the calls. A message may arrive before its receive is posted, and before this side
// has connected; but where both connect before either sends, a peer's death cannot harm this
// process (README, "Connecting says nothing").

#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/vocabulary/memory_kind.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"
#include "transport/operation.hpp"

namespace troupe::transport {

/// Node id of the other side (`NodeId::value`); stable for a job, also when the process restarts.
using Peer = std::int32_t;

/// What a message carries, so that the counters of different traffic never collide.
enum class TagKind : std::uint32_t {
  rows,              ///< Activations or boundary rows. By convention index = message of the plan.
  gradient,          ///< The gradient of those rows.
  passing_rows,      ///< Rows on their way to a device that hands them on; index as of `rows`.
  passing_gradient,  ///< The gradient of rows, likewise.
  reduce,            ///< A holder's gradients on their way to who adds them up.
  reduced,           ///< The sum on its way back.
  content,           ///< Decoded content of samples. By convention index = delivery of the plan.
  state,             ///< Parameters and optimizer state, when a layout changes.
  collective,        ///< Reserved for `Group`.
  user,              ///< Custom stages and tests.
};

/// Names a message between two nodes. Full-width fields: no counter ever wraps into another.
struct Tag {
  EpochNumber epoch = 0;
  TagKind kind = TagKind::user;
  std::uint64_t step = 0;
  std::uint64_t index = 0;

  friend constexpr auto operator<=>(const Tag&, const Tag&) = default;
};

constexpr Tag make_tag(EpochNumber epoch, TagKind kind, std::uint64_t step, std::uint64_t index) {
  return Tag{epoch, kind, step, index};
}

/// "rows epoch 2 step 7 index 31", as errors name it.
std::string to_string(const Tag& tag);

/// Bytes to send. `owner` keeps the memory alive as long as the backend may read it, which after
/// a failure can be longer than the operation. Without an owner the memory must stay valid until
/// the operation completed with success, or else until the transport is destroyed.
struct ConstBuffer {
  const void* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<const void> owner = nullptr;
  MemoryKind memory = MemoryKind::host;  ///< REQUIRES: the transport takes it (`takes`).
};

/// Where received bytes go; `owner` as above. Contents are unspecified until success.
struct MutableBuffer {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<void> owner = nullptr;
};

/// Hears that a connected peer vanished, after all operations with it have failed. `was_up`: not
/// where its process never answered to the connection, and either end may be at fault. Called once
/// per connection, from a thread of the transport: it must not block. Not called for `disconnect`.
using PeerFailureHandler = std::function<void(Peer, const Error&, bool was_up)>;

class Transport {
 public:
  virtual ~Transport() = default;  ///< Fails everything that is pending with `cancelled`.

  /// Own node id.
  virtual Peer self() const = 0;

  /// Opaque bytes that another process gives to `connect`. Constant for the transport's life and
  /// different for every transport ever made: a restarted process has a new one.
  virtual std::vector<std::byte> address() const = 0;

  /// What a user should know of the way between two nodes with these addresses, a clause that goes
  /// after their names: why two nodes of one machine do without shared memory. Empty when there is
  /// nothing, as by default, or where an address is not one of this backend. Pure.
  virtual std::string remark_on(std::span<const std::byte> /*one*/,
                                std::span<const std::byte> /*other*/) const {
    return {};
  }

  /// Whether `send` reads such memory, to other nodes; to oneself it reads the host's alone.
  virtual bool takes(MemoryKind kind) const { return kind == MemoryKind::host; }

  /// Has the transport's own thread, where it has one, call this before what is sent next: what the
  /// memory of a device needs there.
  virtual void prepare_thread(std::function<void()> /*call*/) {}

  /// Opens the connection to a peer. Also after `disconnect` or a failure: with the address of a
  /// restarted process, or again with the same one, provided the other side also reconnects.
  /// Returns before the first byte has moved; an unreachable peer shows as a failed operation.
  /// Connecting to oneself is legal and does nothing.
  /// Errors:
  /// - invalid_argument: not an address of this backend, or the peer is connected already.
  /// - transport_failed: the backend refused, with its reason.
  virtual Status connect(Peer peer, std::span<const std::byte> address) = 0;

  /// Sends `data` to the receive of the same tag. Success means that the memory may be reused,
  /// not that the peer has the bytes. Zero bytes are a message too. To oneself it always works.
  /// The operation's errors:
  /// - not_found: no connection to this peer, or this side has ended it.
  /// - transport_failed: the peer vanished or has disconnected, now or before; with the reason.
  /// - cancelled: `disconnect`, an older epoch number, or the transport is being destroyed.
  virtual Operation send(Peer peer, const Tag& tag, ConstBuffer data) = 0;

  /// Receives exactly `data.bytes` bytes into `data`. Errors as for `send`, and:
  /// - invalid_argument: the message has another size; the text names tag and both sizes. Nothing
  ///   is written and the message is consumed.
  /// - infeasible: posted receives would exceed `receives_max`. Refused at once, never queued:
  ///   the caller holds the buffer already, so waiting would bound nothing.
  virtual Operation receive(Peer peer, const Tag& tag, MutableBuffer data) = 0;

  /// Ends the connection: all pending operations with the peer fail, with `why`, within a second.
  /// Messages that came from it and were not received are dropped. Unknown peers are ignored.
  virtual void disconnect(Peer peer, Error why) = 0;

  /// Forgets epochs before `epoch`: their pending operations end as `cancelled`, their messages
  /// are dropped, now and when they arrive later. A lower number than before has no effect.
  virtual void drop_older_than(EpochNumber epoch) = 0;

  /// Replaces the handler. Set it before the first `connect`.
  virtual void on_peer_failure(PeerFailureHandler handler) = 0;
};

}  // namespace troupe::transport
