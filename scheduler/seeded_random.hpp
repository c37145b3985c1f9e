// Random numbers that are the same on every platform and node, from a seed.
//
// Pure; SplitMix64 (Steele, Lea, Flood 2014).

#pragma once

#include <cstdint>

namespace troupe::scheduler {

class SeededRandom {
 public:
  explicit SeededRandom(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  /// Of [0, count). REQUIRES: count >= 1. The bias is below count / 2^64.
  std::uint64_t below(std::uint64_t count) { return next() % count; }
  /// Of [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace troupe::scheduler
