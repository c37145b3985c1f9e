// Divides a list of UCX transports (UCX_TLS) between the two contexts of a node. Pure.
//
// The network context carries introductions and everything to other machines; shared memory has a
// context of its own, see channel.hpp.

#pragma once

#include <string>
#include <string_view>

#include "runtime/vocabulary/result.hpp"

namespace troupe::transport {

struct TransportLists {
  std::string network;  ///< Never empty.
  std::string shared;   ///< "posix" or "sysv"; empty: no shared memory.
};

/// Takes the lists that UCX takes: names, "all", or exceptions after a "^". Of several kinds of
/// shared memory the first is used, "posix" where the list does not say.
/// Errors: invalid_argument: shared memory without a network transport beside it.
Result<TransportLists> divide_transports(std::string_view tls);

}  // namespace troupe::transport
