#include "balancer/microbatches/taper.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "balancer/loads/load_tree.hpp"

namespace troupe::balancer {

namespace {

constexpr std::size_t kLookMax = 1024;
constexpr std::size_t kLongestPerGroup = 8;

// Longest first, each sample to the microbatch that is least full for its size.
SampleGroups longest_first(std::span<const Workload> workloads, std::span<const Workload> sizes) {
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
  const auto filled = [&](std::size_t group, const Workload& more) {
    return std::max((loads[group].encoder_ms + more.encoder_ms) / sizes[group].encoder_ms,
                    (loads[group].llm_ms + more.llm_ms) / sizes[group].llm_ms);
  };
  // The longest samples look at every group: the emptiest one may be small for them.
  const std::size_t looking = sizes.size() <= kLookMax ? kLongestPerGroup * sizes.size() : 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& sample = workloads[static_cast<std::size_t>(order[i])];
    std::size_t group = i < looking ? 0 : fill.least();
    for (std::size_t other = 1; i < looking && other < sizes.size(); ++other)
      if (filled(other, sample) < filled(group, sample)) group = other;
    groups[group].push_back(order[i]);
    loads[group] += sample;
    fill.set(group, filled(group, {}));
  }
  return groups;
}

}  // namespace

Taper default_taper(std::int64_t pipeline_stages) {
  if (pipeline_stages < 2) return {};
  const auto stages = static_cast<double>(pipeline_stages);
  return {.first = 0.8, .rise = stages, .last = 0.8, .fall = 1.5 * stages};
}

std::vector<Workload> taper_sizes(const Taper& taper, std::int64_t count) {
  const auto eased = [](double least, double from_end, double length) {
    const double left = std::max(0.0, 1 - from_end / length);
    return 1 - (1 - least) * left * left;
  };
  std::vector<Workload> sizes;
  for (std::int64_t i = 0; i < count; ++i) {
    const double size = std::min(eased(taper.first, static_cast<double>(i), taper.rise),
                                 eased(taper.last, static_cast<double>(count - 1 - i), taper.fall));
    sizes.push_back({size, size});
  }
  return sizes;
}

SampleGroups tapered_partition(std::span<const Workload> workloads, std::span<const Workload> sizes,
                               const SearchBudget& budget) {
  return improve_partition(workloads, longest_first(workloads, sizes), sizes, budget);
}

}  // namespace troupe::balancer
