// How much longer or shorter than predicted an action of a simulation takes.
//
// Pure.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "runtime/vocabulary/random.hpp"

namespace troupe::scheduler {

/// A factor, log-normal with mean 1; depends on seed, device and the action's place in its list
/// alone. `deviation`: of its logarithm; 0: always 1.
inline double noise_factor(double deviation, std::uint64_t seed, std::int32_t device,
                           std::size_t place) {
  if (deviation == 0) return 1;
  Random random(seed ^ (static_cast<std::uint64_t>(device) << 40) ^ place);
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  const double normal = radius * std::cos(2 * std::numbers::pi * random.uniform());
  return std::exp(deviation * normal - deviation * deviation / 2);
}

}  // namespace troupe::scheduler
