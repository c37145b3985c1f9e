// The lists that planning_problems.cpp concatenates, by theme.

#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "app/solve/problem.hpp"

namespace troupe::app {

/// partition, module-partition.
std::vector<Problem> partition_problems();
/// templates, instantiate, distribute.
std::vector<Problem> template_problems();
/// reconfigure, copy-plan.
std::vector<Problem> recovery_problems();

/// Bounds on what an input may name: thirty years in milliseconds, an exabyte, 2^53 things.
inline constexpr double kLongestMs = 1e12;
inline constexpr double kMostBytes = 1e18;
inline constexpr std::int64_t kMostThings = std::int64_t{1} << 53;

/// Runs `algorithm`, which returns a `Result`, and adds its milliseconds to what `write` makes of
/// the value.
template <class Algorithm, class Write>
Result<Json> timed_json(Algorithm algorithm, Write write) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = algorithm();
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - begin;
  if (!result.ok()) return result.error();
  Json output = write(result.value());
  output["compute_ms"] = elapsed.count();
  return output;
}

}  // namespace troupe::app
