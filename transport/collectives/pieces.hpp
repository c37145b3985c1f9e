// How the data of a collective are cut, and where each piece lies. Pure.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "transport/transport.hpp"

namespace troupe::transport {

/// Where each piece begins; one more entry than pieces, the last is the sum.
std::vector<std::size_t> starts_of(std::span<const std::size_t> sizes);

/// Each of `counts` times `factor`: elements to bytes.
std::vector<std::size_t> times(std::span<const std::size_t> counts, std::size_t factor);

/// Element counts of the ranks' shards of a sum: even, but never fewer than 4096 elements, so that
/// the first ranks take all of a short sum. REQUIRES: ranks >= 1.
std::vector<std::size_t> shard_counts(std::size_t count, std::size_t ranks);

inline const std::byte* at(const ConstBuffer& buffer, std::size_t offset) {
  return static_cast<const std::byte*>(buffer.data) + offset;
}
inline std::byte* at(const MutableBuffer& buffer, std::size_t offset) {
  return static_cast<std::byte*>(buffer.data) + offset;
}
inline ConstBuffer slice(const ConstBuffer& buffer, std::size_t offset, std::size_t bytes) {
  return {at(buffer, offset), bytes, buffer.owner};
}
inline MutableBuffer slice(const MutableBuffer& buffer, std::size_t offset, std::size_t bytes) {
  return {at(buffer, offset), bytes, buffer.owner};
}
inline ConstBuffer as_const(const MutableBuffer& buffer) {
  return {buffer.data, buffer.bytes, buffer.owner};
}

}  // namespace troupe::transport
