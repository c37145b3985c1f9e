#include "balancer/ranks/replica_assignment.hpp"

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <string>

#include "balancer/loads/descending.hpp"
#include "balancer/loads/first_to_finish.hpp"
#include "balancer/microbatches/partition_search.hpp"

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

/// Work so far; the LLM's decides, the encoder's where that is equal.
struct Load {
  double llm_ms = 0;
  double encoder_ms = 0;

  Load operator+(const Load& other) const {
    return {llm_ms + other.llm_ms, encoder_ms + other.encoder_ms};
  }
  Load operator/(double speed) const { return {llm_ms / speed, encoder_ms / speed}; }
  friend auto operator<=>(const Load&, const Load&) = default;
};

constexpr double kNever = std::numeric_limits<double>::infinity();

/// The longest for the encoder first, each to the replica that is done first with it. A tree of
/// numbers takes a third of the time of one of pairs, and where both are the same it finds the
/// same.
template <class First, class LoadOf>
SampleGroups placed(std::span<const Workload> workloads, First first, LoadOf load_of) {
  SampleGroups replicas(first.size());
  for (const auto sample : by_descending(
           workloads.size(), [&](std::size_t place) { return workloads[place].encoder_ms; })) {
    const auto more = load_of(workloads[static_cast<std::size_t>(sample)]);
    const std::size_t replica = first.find(more);
    first.add(replica, more);
    replicas[replica].push_back(sample);
  }
  return replicas;
}

}  // namespace

Result<SampleGroups> assign_replicas(std::span<const Workload> workloads,
                                     std::span<const double> speeds) {
  if (auto fine = check_workloads(workloads); !fine.ok()) return fine.error();
  if (auto fine = check_speeds(speeds); !fine.ok()) return fine.error();
  const bool is_one_weight = std::all_of(workloads.begin(), workloads.end(), [](const Workload& w) {
    return w.encoder_ms == w.llm_ms;
  });
  auto replicas = is_one_weight ? placed(workloads, FirstToFinish<double>(speeds),
                                         [](const Workload& work) { return work.llm_ms; })
                                : placed(workloads, FirstToFinish<Load>(speeds, {kNever, kNever}),
                                         [](const Workload& work) {
                                           return Load{work.llm_ms, work.encoder_ms};
                                         });
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
