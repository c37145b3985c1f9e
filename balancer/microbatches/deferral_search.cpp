#include "balancer/microbatches/deferral_search.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "balancer/microbatches/hierarchical.hpp"
#include "balancer/microbatches/subset_sum.hpp"

namespace troupe::balancer {

namespace {

using Group = std::vector<std::int32_t>;
using Positions = std::vector<std::int32_t>;

constexpr double kEvenEnough = 1e-3;       // Of the pair's mean: no need to take anything back.
constexpr std::size_t kTakenBackMax = 48;  // Samples of the lighter microbatch looked at.

std::vector<double> llm_sizes(std::span<const Workload> workloads, const Group& group) {
  std::vector<double> sizes;
  for (const auto sample : group)
    sizes.push_back(workloads[static_cast<std::size_t>(sample)].llm_ms);
  return sizes;
}

double sum(const std::vector<double>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), 0.0);
}

// The samples at these ascending positions, and the others.
std::pair<Group, Group> split(const Group& group, const Positions& positions) {
  std::pair<Group, Group> parts;
  auto next = positions.begin();
  for (std::size_t i = 0; i < group.size(); ++i) {
    const bool chosen = next != positions.end() && static_cast<std::size_t>(*next) == i;
    if (chosen) ++next;
    (chosen ? parts.first : parts.second).push_back(group[i]);
  }
  return parts;
}

void append(Group& group, const Group& more) {
  group.insert(group.end(), more.begin(), more.end());
}

// The best exchange within a pair: what the heavier gives for at most two samples of the lighter.
class PairExchange {
 public:
  PairExchange(const std::vector<double>& heavy, const std::vector<double>& light)
      : sums_(heavy), light_(light), wanted_((sums_.total() - sum(light)) / 2) {
    const double even = kEvenEnough * (sums_.total() - wanted_);
    consider({});
    const auto count = static_cast<std::int32_t>(std::min(light_.size(), kTakenBackMax));
    for (std::int32_t i = 0; i < count && miss_ > even; ++i) consider({i});
    for (std::int32_t i = 0; i < count && miss_ > even; ++i)
      for (std::int32_t j = i + 1; j < count && miss_ > even; ++j) consider({i, j});
  }

  Positions given() const { return sums_.items(give_); }
  const Positions& taken() const { return take_; }

 private:
  void consider(const Positions& take) {
    double back = 0;
    for (const auto position : take) back += light_[static_cast<std::size_t>(position)];
    const auto give = sums_.closest(wanted_ + back);
    const double miss = std::abs(give.sum - back - wanted_);
    if (miss >= miss_) return;
    give_ = give;
    take_ = take;
    miss_ = miss;
  }

  SubsetSums sums_;
  const std::vector<double>& light_;
  double wanted_;
  SubsetSums::Choice give_;
  Positions take_;
  double miss_ = HUGE_VAL;
};

std::vector<double> llm_loads(std::span<const Workload> workloads, const SampleGroups& groups) {
  std::vector<double> loads;
  for (const auto& load : group_loads(workloads, groups)) loads.push_back(load.llm_ms);
  return loads;
}

// Order of execution of a chain: each step takes the lightest microbatch that leaves no shortage,
// or the heaviest where all do.
std::vector<std::size_t> chain_order(const std::vector<double>& loads) {
  const double mean = sum(loads) / static_cast<double>(std::max<std::size_t>(1, loads.size()));
  std::set<std::pair<double, std::size_t>> waiting;
  for (std::size_t m = 0; m < loads.size(); ++m) waiting.emplace(loads[m], m);
  std::vector<std::size_t> order;
  double surplus = 0;
  while (!waiting.empty()) {
    auto pick = waiting.lower_bound({mean - surplus, 0});
    if (pick == waiting.end()) --pick;
    surplus += pick->first - mean;
    order.push_back(pick->second);
    waiting.erase(pick);
  }
  return order;
}

MicrobatchPlan chained(std::span<const Workload> workloads, const SampleGroups& groups) {
  const auto loads = llm_loads(workloads, groups);
  double remaining = sum(loads);
  SampleGroups encoder;
  SampleGroups llm;
  Group carried;
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
  for (const auto m : chain_order(loads)) {
    const auto position = encoder.size();
    const auto left = groups.size() - position;
    const double carried_ms = sum(llm_sizes(workloads, carried));
    const double wanted = remaining / static_cast<double>(left) - carried_ms;
    Group now = std::move(carried);
    carried.clear();
    encoder.push_back(groups[m]);
    if (left == 1) {
      append(now, groups[m]);
    } else {
      const SubsetSums sums(llm_sizes(workloads, groups[m]));
      auto [kept, passed] = split(groups[m], sums.items(sums.closest(wanted)));
      append(now, kept);
      carried = std::move(passed);
      if (!carried.empty()) pairs.emplace_back(position, position + 1);
    }
    remaining -= sum(llm_sizes(workloads, now));
    llm.push_back(std::move(now));
  }
  auto plan = make_plan(std::move(encoder), std::move(llm));
  plan.pairs = std::move(pairs);
  return plan;
}

}  // namespace

MicrobatchPlan defer_with_exchange(std::span<const Workload> workloads, SampleGroups groups) {
  const auto loads = llm_loads(workloads, groups);
  std::vector<std::size_t> order(groups.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return loads[a] > loads[b]; });
  SampleGroups encoder;
  SampleGroups llm;
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
  for (std::size_t i = 0; i < groups.size() / 2; ++i) {
    auto& heavy = groups[order[i]];
    auto& light = groups[order[groups.size() - 1 - i]];
    const auto light_sizes = llm_sizes(workloads, light);
    const PairExchange exchange(llm_sizes(workloads, heavy), light_sizes);
    auto [given, kept] = split(heavy, exchange.given());
    auto [taken, stays] = split(light, exchange.taken());
    append(kept, taken);
    append(stays, given);
    pairs.emplace_back(encoder.size(), encoder.size() + 1);
    llm.push_back(std::move(kept));
    llm.push_back(std::move(stays));
    encoder.push_back(std::move(heavy));
    encoder.push_back(std::move(light));
  }
  if (groups.size() % 2 == 1) {
    encoder.push_back(groups[order[groups.size() / 2]]);
    llm.push_back(encoder.back());
  }
  auto plan = make_plan(std::move(encoder), std::move(llm));
  plan.pairs = std::move(pairs);
  return plan;
}

MicrobatchPlan defer_in_chain(std::span<const Workload> workloads, SampleGroups groups) {
  auto chain = chained(workloads, groups);
  auto paired = defer_in_pairs(workloads, std::move(groups));
  const auto largest = [&](const MicrobatchPlan& plan) {
    return llm_spread(group_loads(workloads, plan.llm)).max_ms;
  };
  return largest(chain) <= largest(paired) ? chain : paired;
}

}  // namespace troupe::balancer
