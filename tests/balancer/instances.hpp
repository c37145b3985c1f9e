// Random instances for the tests of this folder.

#pragma once

#include <cstdint>
#include <vector>

#include "balancer/loads/workload.hpp"
#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {

/// Integer workloads in [0, largest], so that sums compare exactly.
inline std::vector<Workload> small_workloads(std::uint64_t seed, std::size_t count,
                                             std::uint64_t largest = 12) {
  Random random(seed);
  std::vector<Workload> workloads(count);
  for (auto& workload : workloads) {
    workload.encoder_ms = static_cast<double>(random.below(largest + 1));
    workload.llm_ms = static_cast<double>(random.below(largest + 1));
  }
  return workloads;
}

/// Log-normal workloads of mean about 1, as lengths of real data sets are.
inline std::vector<Workload> log_normal_workloads(std::uint64_t seed, std::size_t count,
                                                  double sigma = 0.6) {
  Random random(seed);
  std::vector<Workload> workloads(count);
  for (auto& workload : workloads) {
    workload.encoder_ms = random.log_normal(1, sigma);
    workload.llm_ms = random.log_normal(1, sigma);
  }
  return workloads;
}

/// Calls `visit(group_of)` for every assignment of `count` items to `groups` groups.
template <class Visit>
void for_each_assignment(std::size_t count, std::size_t groups, Visit visit) {
  std::vector<std::size_t> group_of(count, 0);
  while (true) {
    visit(group_of);
    std::size_t i = 0;
    while (i < count && ++group_of[i] == groups) group_of[i++] = 0;
    if (i == count) return;
  }
}

}  // namespace troupe::balancer
