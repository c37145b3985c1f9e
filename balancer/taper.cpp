#include "balancer/taper.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "balancer/load_tree.hpp"

namespace troupe::balancer {

namespace {

// Longest first, each sample to the microbatch that is least full for its size.
SampleGroups longest_first(std::span<const Workload> workloads, std::span<const double> sizes) {
  const auto work = [&](std::int32_t i) {
    const auto& sample = workloads[static_cast<std::size_t>(i)];
    return sample.encoder_ms + sample.llm_ms;
  };
  std::vector<std::int32_t> order(workloads.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return work(a) > work(b); });
  std::vector<Workload> loads(sizes.size());
  SampleGroups groups(sizes.size());
  LoadTree<double> fill(sizes.size());
  for (const auto sample : order) {
    const std::size_t group = fill.least();
    groups[group].push_back(sample);
    loads[group] += workloads[static_cast<std::size_t>(sample)];
    fill.set(group, std::max(loads[group].encoder_ms, loads[group].llm_ms) / sizes[group]);
  }
  return groups;
}

}  // namespace

Taper default_taper(std::int64_t pipeline_stages) {
  if (pipeline_stages < 2) return {};
  const double growth = 1 + 0.8 / static_cast<double>(pipeline_stages);
  return {.first = 0.5, .growth = growth, .last = 0.5, .shrink = growth};
}

std::vector<double> taper_sizes(const Taper& taper, std::int64_t count) {
  std::vector<double> sizes(static_cast<std::size_t>(count), 1);
  double size = taper.first;
  for (auto i = sizes.begin(); i != sizes.end() && size < 1; ++i, size *= taper.growth)
    *i = std::min(*i, size);
  size = taper.last;
  for (auto i = sizes.rbegin(); i != sizes.rend() && size < 1; ++i, size *= taper.shrink)
    *i = std::min(*i, size);
  return sizes;
}

SampleGroups tapered_partition(std::span<const Workload> workloads, std::span<const double> sizes,
                               const SearchBudget& budget) {
  return improve_partition(workloads, longest_first(workloads, sizes), sizes, budget);
}

}  // namespace troupe::balancer
