// Random numbers that are the same on every machine: the standard library fixes its engines but
// not its distributions.
//
// Pure apart from its own state; not thread-safe, one owner.

#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

namespace troupe::balancer {

/// SplitMix64 (Steele, Lea, Flood, 2014): one 64-bit state, every seed is good.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  /// Uniform in [0, bound); bound >= 1. The bias of bound / 2^64 is of no consequence here.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

  /// Standard normal (Box and Muller).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

  /// exp of a normal with this median and deviation of the logarithm.
  double log_normal(double median, double sigma) { return median * std::exp(sigma * normal()); }

  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace troupe::balancer
