#include "balancer/replica_assignment.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <tuple>

#include "balancer/partition_search.hpp"

namespace troupe::balancer {

namespace {

Status check_speeds(std::span<const double> speeds) {
  if (auto count = check_group_count(static_cast<std::int64_t>(speeds.size()), "speeds");
      !count.ok())
    return count;
  for (std::size_t r = 0; r < speeds.size(); ++r)
    if (!std::isfinite(speeds[r]) || speeds[r] <= 0)
      return Error{Errc::invalid_argument,
                   "a speed must be a finite number > 0, found " + std::to_string(speeds[r]),
                   "replica " + std::to_string(r),
                   {}};
  return Done{};
}

}  // namespace

Result<SampleGroups> assign_replicas(std::span<const Workload> workloads,
                                     std::span<const double> speeds) {
  if (auto fine = check_workloads(workloads); !fine.ok()) return fine.error();
  if (auto fine = check_speeds(speeds); !fine.ok()) return fine.error();
  std::vector<std::int32_t> order(workloads.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return workloads[static_cast<std::size_t>(a)].encoder_ms >
           workloads[static_cast<std::size_t>(b)].encoder_ms;
  });
  std::vector<Workload> loads(speeds.size());
  SampleGroups replicas(speeds.size());
  const auto finish = [&](std::size_t replica, const Workload& sample) {
    return std::tuple{(loads[replica].llm_ms + sample.llm_ms) / speeds[replica],
                      (loads[replica].encoder_ms + sample.encoder_ms) / speeds[replica]};
  };
  for (const auto sample : order) {
    const auto& work = workloads[static_cast<std::size_t>(sample)];
    std::size_t best = 0;
    for (std::size_t r = 1; r < speeds.size(); ++r)
      if (finish(r, work) < finish(best, work)) best = r;
    loads[best] += work;
    replicas[best].push_back(sample);
  }
  for (auto& replica : replicas) std::sort(replica.begin(), replica.end());
  return replicas;
}

Result<SampleGroups> assign_replicas_search(std::span<const Workload> workloads,
                                            std::span<const double> speeds,
                                            std::int64_t evaluations_max) {
  auto replicas = assign_replicas(workloads, speeds);
  if (!replicas.ok()) return replicas;
  std::vector<Workload> paired;
  for (const double speed : speeds) paired.push_back({speed, speed});
  return improve_partition(workloads, std::move(replicas).value(), paired,
                           {.evaluations_max = evaluations_max});
}

}  // namespace troupe::balancer
