// A message of the UCX backend on the receiving side, and the order in which messages count.
//
// Not thread-safe; pure bookkeeping.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "transport/transport.hpp"

struct ucp_worker;

namespace troupe::transport {

/// A message that has arrived, in one of the forms that it can wait in.
struct Incoming {
  struct Seen {  ///< Small: UCX shows the bytes, only during its callback.
    const void* data = nullptr;
  };
  struct Copied {  ///< Small, and it has to wait.
    std::vector<std::byte> data;
  };
  struct Offered {  ///< Large: UCX holds a description; fetching it moves the bytes.
    void* description = nullptr;
    ucp_worker* worker = nullptr;  ///< That it belongs to.
  };
  struct Goodbye {};  ///< The last of a connection.
  struct Local {      ///< From this node to itself: still in the sender's buffer.
    ConstBuffer data;
    Completion sent;
  };

  Tag tag;
  std::size_t bytes = 0;
  std::variant<Seen, Copied, Offered, Goodbye, Local> form;

  /// Where the bytes are; null for an offer and a goodbye.
  const void* data() const;

  /// Makes the message independent of UCX's callback.
  void keep_bytes();

  /// Memory that the wait costs: bytes of its own and what the tables take.
  std::int64_t copied_bytes() const;
};

/// Restores the order of sending: UCX may hand a small message over before a large one that was
/// sent first.
class Inbound {
 public:
  /// True when this is the next message; the caller delivers it and then what `next` gives.
  bool is_next(std::uint64_t sequence) {
    if (sequence != expected_) return false;
    ++expected_;
    return true;
  }
  /// Keeps a message that came too early.
  void park(std::uint64_t sequence, Incoming message) {
    early_.emplace(sequence, std::move(message));
  }
  /// The parked message whose turn it is.
  std::optional<Incoming> next() {
    const auto found = early_.find(expected_);
    if (found == early_.end()) return std::nullopt;
    ++expected_;
    return std::move(early_.extract(found).mapped());
  }
  /// Everything parked, when the connection ends.
  std::map<std::uint64_t, Incoming> take_all() { return std::exchange(early_, {}); }

 private:
  std::uint64_t expected_ = 0;
  std::map<std::uint64_t, Incoming> early_;
};

}  // namespace troupe::transport
