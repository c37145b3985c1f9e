// Which connection a message belongs to: tells the messages of a live connection from those of a
// process that died, of a connection that ended, and of one that is not open here yet.
//
// Not thread-safe; pure bookkeeping. Both sides count their connections to one another's process,
// so a pair (process, number) names the same connection on both sides without negotiation.

#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "transport/transport.hpp"

namespace troupe::transport {

/// The sending end of a connection: a process (random number, one per transport ever made) and
/// which of its connections to us, from 1.
struct Link {
  std::uint64_t process = 0;
  std::uint32_t session = 0;

  friend constexpr auto operator<=>(const Link&, const Link&) = default;
};

class Links {
 public:
  /// What to do with a message of a link.
  enum class Standing : std::uint8_t {
    open,   ///< Of a connection open here: match it.
    early,  ///< This side has not connected yet: keep it.
    stale,  ///< Of a connection that ended here: drop it.
    newer,  ///< The peer has left the connection that is open here for a new one.
  };

  /// Opens the next connection to `process`, known as `peer` from now on.
  /// Errors: invalid_argument: the peer, or that process under another id, is connected already.
  Result<Link> open(Peer peer, std::uint64_t process);

  /// Ends the peer's connection; returns it, or nothing when there was none.
  std::optional<Link> close(Peer peer);

  /// Notes that the other side has ended this connection, which may not be open here yet: the next
  /// `open` then counts on from it.
  void skip(Link link);

  std::optional<Link> find(Peer peer) const;
  std::vector<Peer> peers() const;
  std::optional<Peer> peer_of(std::uint64_t process) const;
  Standing standing(Link link) const;

 private:
  struct Process {
    std::uint32_t sessions = 0;  ///< Connections so far, the open one included.
    std::optional<Peer> peer;    ///< While one is open.
  };
  std::map<Peer, Link> open_;
  std::unordered_map<std::uint64_t, Process> processes_;  ///< Never shrinks; 24 bytes a restart.
};

}  // namespace troupe::transport

template <>
struct std::hash<troupe::transport::Link> {
  std::size_t operator()(const troupe::transport::Link& link) const noexcept {
    return std::hash<std::uint64_t>{}(link.process + link.session);
  }
};
