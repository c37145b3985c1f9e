#include "balancer/microbatches/baselines.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "balancer/loads/load_tree.hpp"
#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {

namespace {

constexpr std::size_t kReorderedMax = 4096;

SampleGroups cut(const std::vector<std::int32_t>& order, std::int64_t microbatches) {
  SampleGroups groups(static_cast<std::size_t>(microbatches));
  const std::size_t base = order.size() / groups.size();
  const std::size_t longer = order.size() % groups.size();
  auto next = order.begin();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto end = next + static_cast<std::ptrdiff_t>(base + (g < longer ? 1 : 0));
    groups[g].assign(next, end);
    std::sort(groups[g].begin(), groups[g].end());
    next = end;
  }
  return groups;
}

std::vector<std::int32_t> arrival(std::size_t sample_count) {
  std::vector<std::int32_t> order(sample_count);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// The remaining microbatch whose encoder work fills the interval best.
std::size_t best_fill(const std::vector<Workload>& loads, const std::vector<std::size_t>& remaining,
                      double interval_ms) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < remaining.size(); ++i)
    if (std::abs(loads[remaining[i]].encoder_ms - interval_ms) <
        std::abs(loads[remaining[best]].encoder_ms - interval_ms))
      best = i;
  return best;
}

// Execution order of the microbatches.
std::vector<std::size_t> disttrain_order(const std::vector<Workload>& loads,
                                         std::size_t pipeline_stages) {
  std::vector<std::size_t> by_size(loads.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(), [&](auto a, auto b) {
    return loads[a].encoder_ms + loads[a].llm_ms < loads[b].encoder_ms + loads[b].llm_ms;
  });
  const std::size_t tail_count = std::min(loads.size() - 1, pipeline_stages - 1);
  const auto middle = by_size.begin() + static_cast<std::ptrdiff_t>(1 + tail_count);
  std::vector<std::size_t> order{by_size.front()};
  std::vector<std::size_t> remaining(middle, by_size.end());
  std::sort(remaining.begin(), remaining.end());
  while (!remaining.empty()) {
    const std::size_t pick =
        loads.size() > kReorderedMax ? 0 : best_fill(loads, remaining, loads[order.back()].llm_ms);
    order.push_back(remaining[pick]);
    if (loads.size() > kReorderedMax) {
      order.insert(order.end(), remaining.begin() + 1, remaining.end());
      break;
    }
    remaining.erase(remaining.begin() + static_cast<std::ptrdiff_t>(pick));
  }
  // The smallest of the tail runs last.
  for (auto i = middle - 1; i != by_size.begin(); --i) order.push_back(*i);
  return order;
}

}  // namespace

SampleGroups in_order_groups(std::size_t sample_count, std::int64_t microbatches) {
  return cut(arrival(sample_count), microbatches);
}

SampleGroups random_groups(std::size_t sample_count, std::int64_t microbatches,
                           std::uint64_t seed) {
  auto order = arrival(sample_count);
  Random(seed).shuffle(order);
  return cut(order, microbatches);
}

SampleGroups disttrain_groups(std::span<const Workload> workloads, std::int64_t microbatches,
                              std::int64_t pipeline_stages) {
  auto groups = in_order_groups(workloads.size(), microbatches);
  const auto stages = static_cast<std::size_t>(std::max<std::int64_t>(1, pipeline_stages));
  SampleGroups ordered;
  for (const auto group : disttrain_order(group_loads(workloads, groups), stages))
    ordered.push_back(std::move(groups[group]));
  return ordered;
}

SampleGroups llm_only_groups(std::span<const Workload> workloads, std::int64_t microbatches) {
  auto order = arrival(workloads.size());
  const auto llm_ms = [&](std::int32_t i) { return workloads[static_cast<std::size_t>(i)].llm_ms; };
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return llm_ms(a) > llm_ms(b); });
  SampleGroups groups(static_cast<std::size_t>(microbatches));
  LoadTree<double> loads(groups.size());
  for (const auto sample : order) {
    const auto group = loads.least();
    groups[group].push_back(sample);
    loads.set(group, loads.key(group) + llm_ms(sample));
  }
  for (auto& group : groups) std::sort(group.begin(), group.end());
  return groups;
}

}  // namespace troupe::balancer
