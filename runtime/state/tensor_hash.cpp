#include "runtime/state/tensor_hash.hpp"

#include <cassert>
#include <cstring>

namespace troupe::state {

namespace {

// Odd constants with well-spread bits, from the fractional parts of sqrt(2) and sqrt(3).
constexpr std::uint64_t kMultiplier = 0x6a09e667f3bcc909ULL;
constexpr std::uint64_t kFinal = 0xbb67ae8584caa73bULL;

// One multiplication spreads upwards, the shift brings the high bits back down.
std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * kMultiplier;
  return hash ^ (hash >> 32);
}

std::uint64_t load(const std::byte* from, std::size_t count) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, count);
  return word;
}

}  // namespace

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::uint64_t hash = mix(seed, bytes.size());
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) hash = mix(hash, load(bytes.data() + at, 8));
  if (at < bytes.size()) hash = mix(hash, load(bytes.data() + at, bytes.size() - at));
  return mix(hash, kFinal);
}

std::uint64_t hash_tensor(const at::Tensor& tensor, std::uint64_t seed) {
  assert(tensor.defined());
  std::uint64_t hash = mix(seed, static_cast<std::uint64_t>(tensor.scalar_type()));
  for (const auto size : tensor.sizes()) hash = mix(hash, static_cast<std::uint64_t>(size));
  const auto plain = tensor.detach().cpu().contiguous();
  return hash_bytes({static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()}, hash);
}

}  // namespace troupe::state
