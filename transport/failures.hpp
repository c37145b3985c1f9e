// The errors of transports in one wording for all backends. Pure.

#pragma once

#include <cstddef>

#include "runtime/vocabulary/result.hpp"
#include "transport/transport.hpp"

namespace troupe::transport {

/// A message of another size than its receive.
Error size_mismatch(Peer peer, const Tag& tag, std::size_t received_bytes,
                    std::size_t expected_bytes);
/// No connection to the peer.
Error not_connected(Peer peer);
/// The operation belongs to an epoch that is over.
Error epoch_is_over(const Tag& tag, EpochNumber current);
/// A receive beyond `receives_max`.
Error too_many_receives(Peer peer, const Tag& tag, std::size_t bytes, std::int64_t posted_bytes,
                        Bytes receives_max);
/// The transport is being destroyed.
Error shutting_down();
/// A receive taken back by `Operation::cancel`.
Error receive_cancelled(Peer peer, const Tag& tag);
/// The other side ended the connection; `how` completes the sentence "peer 3 ...".
Error peer_lost(Peer peer, const std::string& how);

}  // namespace troupe::transport
