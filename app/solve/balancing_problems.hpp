// What the balancing problems share: their lists by theme, and reading and writing of samples,
// ragged arrays and groups.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "app/solve/problem.hpp"
#include "balancer/loads/workload.hpp"

namespace troupe::app {

/// replicas, hierarchical, ilp-partition.
std::vector<Problem> microbatch_problems();
/// post-balance, node-wise, rearrange.
std::vector<Problem> rank_problems();
/// token-blocks.
std::vector<Problem> token_problems();

/// The largest time in milliseconds that an input may name: thirty years.
inline constexpr double kTimeMax = 1e12;
inline constexpr double kTimeMin = 1e-3;  // Of a time limit.

/// `samples`: [{"encoder_ms", "llm_ms"}...]; reports the first bad entry.
std::vector<balancer::Workload> read_workloads(Reader& in);

/// An array of arrays of integers in [minimum, maximum].
std::vector<std::vector<std::int64_t>> read_rows(Reader& in, const std::string& key,
                                                 std::int64_t minimum, std::int64_t maximum);

/// Runs `algorithm` and returns its result with the milliseconds it took.
template <class Algorithm>
auto timed(Algorithm algorithm) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = algorithm();
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - begin;
  return std::pair{std::move(result), elapsed.count()};
}

}  // namespace troupe::app
