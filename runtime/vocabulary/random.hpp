// Random numbers that are the same on every machine and in every release, from a seed: the standard
// library fixes its engines but not its distributions.
//
// For orders of samples, searches, simulated noise and made-up data; not for secrets. Pure apart
// from its own state; not thread-safe, one owner.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

namespace troupe {

/// SplitMix64 (Steele, Lea and Flood, 2014): one 64-bit state, every seed is good.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  /// 64 well-mixed bits; every value comes once in 2^64 calls.
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  /// Of [0, bound), by remainder: takes one number, its bias is below bound / 2^64. REQUIRES: bound
  /// >= 1.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

  /// Of [0, bound) without bias: Lemire's multiply-and-reject (2019); may take several numbers.
  /// Other numbers than `below`: the orders of epochs depend on these. REQUIRES: bound >= 1.
  std::uint64_t below_unbiased(std::uint64_t bound) {
    const std::uint64_t reject_below = (0 - bound) % bound;  // 2^64 mod bound.
    while (true) {
      const auto product = static_cast<unsigned __int128>(next()) * bound;
      if (static_cast<std::uint64_t>(product) >= reject_below)
        return static_cast<std::uint64_t>(product >> 64);
    }
  }

  /// Of [low, high], both possible, without bias. REQUIRES: low <= high.
  std::int32_t between(std::int32_t low, std::int32_t high) {
    const auto count = static_cast<std::uint64_t>(std::int64_t{high} - low + 1);
    return static_cast<std::int32_t>(low + static_cast<std::int64_t>(below_unbiased(count)));
  }

  /// Of [0, 1), a multiple of 2^-53.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  /// Standard normal (Box and Muller); takes two numbers.
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

  /// exp of a normal with this median and deviation of the logarithm.
  double log_normal(double median, double sigma) { return median * std::exp(sigma * normal()); }

  /// Every order equally likely, as far as `below` is unbiased (Fisher and Yates).
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace troupe
