// What a UCX transport publishes about itself. Pure encoding and decoding.
//
// Layout (little-endian, machines of one job have one byte order): 8 bytes "ucx-3" padded with 0,
// then `UcxAddress` field by field, then the worker's own bytes.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "transport/transport.hpp"
#include "transport/ucx/process_identity.hpp"

namespace troupe::transport {

/// What a process shows its peers in its address, which travels among members of the job alone, and
/// expects on every message: UCX itself takes messages from anybody who reaches its ports.
using AccessToken = std::array<std::uint64_t, 2>;

/// Random, from the operating system.
AccessToken make_access_token();

struct UcxAddress {
  std::uint64_t process = 0;    ///< Number of the transport, see process_number.hpp.
  std::uint32_t ucx_major = 0;  ///< Peers of different UCX releases do not understand each other.
  std::uint32_t ucx_minor = 0;
  AccessToken token{};
  ProcessIdentity identity;  ///< So that a process of this machine can be watched.
  std::vector<std::byte> worker;
};

std::vector<std::byte> encode(const UcxAddress& address);

/// Errors: invalid_argument: not an address of this backend, cut off, or of another UCX release
/// than `ucx_major.ucx_minor`.
Result<UcxAddress> decode_ucx_address(Peer peer, std::span<const std::byte> bytes,
                                      std::uint32_t ucx_major, std::uint32_t ucx_minor);

}  // namespace troupe::transport
