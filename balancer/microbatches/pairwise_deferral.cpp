// The published deferral: pairs of microbatches exchange LLM work in one direction.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "balancer/microbatches/bottleneck_match.hpp"
#include "balancer/microbatches/hierarchical.hpp"
#include "balancer/microbatches/subset_sum.hpp"

namespace troupe::balancer {

namespace {

constexpr std::size_t kMatchedMicrobatchesMax = 2048;

// Microbatches by descending LLM load (ties to the lower index) and what the heavier half can give.
struct Halves {
  std::vector<std::size_t> overloaded;
  std::vector<std::size_t> underloaded;
  std::vector<double> load;  // LLM milliseconds per microbatch.
};

Halves split(std::span<const Workload> workloads, const SampleGroups& groups) {
  Halves halves;
  for (const auto& load : group_loads(workloads, groups)) halves.load.push_back(load.llm_ms);
  std::vector<std::size_t> order(groups.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return halves.load[a] > halves.load[b]; });
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(order.size() / 2);
  halves.overloaded.assign(order.begin(), middle);
  halves.underloaded.assign(middle, order.end());
  return halves;
}

SubsetSums sums_of(std::span<const Workload> workloads, const std::vector<std::int32_t>& group) {
  std::vector<double> sizes;
  for (const auto sample : group)
    sizes.push_back(workloads[static_cast<std::size_t>(sample)].llm_ms);
  return SubsetSums(sizes);
}

// Equation 4.3: the larger of both loads after the best transfer.
double bottleneck(const Halves& halves, std::size_t over, std::size_t under,
                  const SubsetSums& sums) {
  const double moved = sums.closest((halves.load[over] - halves.load[under]) / 2).sum;
  return std::max(halves.load[over] - moved, halves.load[under] + moved);
}

BottleneckMatching match(const Halves& halves, const std::vector<SubsetSums>& sums) {
  std::vector<std::vector<double>> pair_cost(halves.overloaded.size());
  std::vector<double> lone_cost;
  for (std::size_t row = 0; row < pair_cost.size(); ++row) {
    const auto over = halves.overloaded[row];
    lone_cost.push_back(halves.load[over]);
    for (const auto under : halves.underloaded)
      pair_cost[row].push_back(bottleneck(halves, over, under, sums[row]));
  }
  return bottleneck_match(pair_cost, lone_cost);
}

BottleneckMatching heaviest_with_lightest(const Halves& halves) {
  BottleneckMatching matching;
  const auto columns = static_cast<std::int32_t>(halves.underloaded.size());
  for (std::size_t row = 0; row < halves.overloaded.size(); ++row) {
    matching.partner.push_back(columns - 1 - static_cast<std::int32_t>(row));
    matching.critical.push_back(true);
  }
  return matching;
}

// Moves the chosen samples from one LLM group to another.
void move_samples(const SubsetSums& sums, double wanted, const std::vector<std::int32_t>& from,
                  std::vector<std::int32_t>& giver, std::vector<std::int32_t>& receiver) {
  const auto positions = sums.items(sums.closest(wanted));
  giver.clear();
  auto next = positions.begin();
  for (std::size_t i = 0; i < from.size(); ++i) {
    const bool chosen = next != positions.end() && static_cast<std::size_t>(*next) == i;
    if (chosen) ++next;
    (chosen ? receiver : giver).push_back(from[i]);
  }
}

}  // namespace

MicrobatchPlan defer_in_pairs(std::span<const Workload> workloads, SampleGroups groups) {
  const Halves halves = split(workloads, groups);
  const bool by_order = groups.size() > kMatchedMicrobatchesMax;
  std::vector<SubsetSums> sums;
  for (const auto over : halves.overloaded)
    if (!by_order) sums.push_back(sums_of(workloads, groups[over]));
  const auto matching = by_order ? heaviest_with_lightest(halves) : match(halves, sums);
  SampleGroups encoder;
  SampleGroups llm;
  std::vector<bool> paired(halves.underloaded.size(), false);
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
  for (std::size_t row = 0; row < halves.overloaded.size(); ++row) {
    const auto over = halves.overloaded[row];
    const auto column = static_cast<std::size_t>(matching.partner[row]);
    const auto under = halves.underloaded[column];
    paired[column] = true;
    pairs.emplace_back(encoder.size(), encoder.size() + 1);
    std::vector<std::int32_t> giver = groups[over];
    std::vector<std::int32_t> receiver = groups[under];
    if (matching.critical[row])
      move_samples(by_order ? sums_of(workloads, groups[over]) : sums[row],
                   (halves.load[over] - halves.load[under]) / 2, groups[over], giver, receiver);
    llm.push_back(std::move(giver));
    llm.push_back(std::move(receiver));
    encoder.push_back(std::move(groups[over]));
    encoder.push_back(std::move(groups[under]));
  }
  for (std::size_t column = 0; column < paired.size(); ++column) {
    if (paired[column]) continue;
    encoder.push_back(groups[halves.underloaded[column]]);
    llm.push_back(std::move(groups[halves.underloaded[column]]));
  }
  auto plan = make_plan(std::move(encoder), std::move(llm));
  plan.pairs = std::move(pairs);
  return plan;
}

}  // namespace troupe::balancer
