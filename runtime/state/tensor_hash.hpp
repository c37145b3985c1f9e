// A 64-bit fingerprint of tensors, with which holders of one parameter show that they agree.
//
// Not cryptographic. Equal bits, shape and type give equal hashes on every node (little-endian);
// 0.0 and -0.0 differ. Pure; about 4 GB/s on one core.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace troupe::state {

/// Where a chain of hashes begins.
inline constexpr std::uint64_t kHashSeed = 0x9e3779b97f4a7c15ULL;

/// Hash of raw bytes, continuing from `seed`.
std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed = kHashSeed);

/// Hash of a tensor's type, shape and elements in row-major order, whatever its strides or device.
/// Chain several by passing the last result as `seed`. REQUIRES: defined.
std::uint64_t hash_tensor(const at::Tensor& tensor, std::uint64_t seed = kHashSeed);

}  // namespace troupe::state
