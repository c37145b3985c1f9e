// A small random generator whose numbers are the same on every platform and in every release.
//
// Pure; for orders of samples and the demo's data, not for secrets.

#pragma once

#include <cstdint>

namespace troupe::data {

/// SplitMix64 (Steele, Lea and Flood, 2014): 64 well-mixed bits per step from any seed.
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  /// Uniform in [0, bound): Lemire's multiply-and-reject (2019). REQUIRES: bound >= 1.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t reject_below = (0 - bound) % bound;  // 2^64 mod bound.
    while (true) {
      const auto product = static_cast<unsigned __int128>(next()) * bound;
      if (static_cast<std::uint64_t>(product) >= reject_below)
        return static_cast<std::uint64_t>(product >> 64);
    }
  }

  /// Uniform in [low, high]. REQUIRES: low <= high.
  std::int32_t between(std::int32_t low, std::int32_t high) {
    return low + static_cast<std::int32_t>(below(static_cast<std::uint64_t>(high - low) + 1));
  }

 private:
  std::uint64_t state_;
};

}  // namespace troupe::data
