// Largest differencing for K ways, with partial partitions that hold only their groups in use.

#include <algorithm>
#include <queue>
#include <tuple>

#include "balancer/microbatches/baselines.hpp"

namespace troupe::balancer {

namespace {

// A group in the making: its work and its samples as a linked list through `next`.
struct Heap {
  double sum = 0;
  std::int32_t first = -1;
  std::int32_t last = -1;
};

// Groups by descending work; groups beyond the list are empty.
struct Partial {
  std::vector<Heap> groups;
  double spread = 0;
  std::int64_t age = 0;  // The order of creation, for ties.
};

struct SmallerSpread {
  bool operator()(const Partial& a, const Partial& b) const {
    return std::tie(a.spread, b.age) < std::tie(b.spread, a.age);
  }
};

class Differencing {
 public:
  Differencing(std::span<const Workload> workloads, std::size_t ways)
      : ways_(ways), next_(workloads.size(), -1) {
    for (std::size_t i = 0; i < workloads.size(); ++i) {
      const auto sample = static_cast<std::int32_t>(i);
      push({{workloads[i].encoder_ms + workloads[i].llm_ms, sample, sample}});
    }
  }

  SampleGroups run() {
    while (queue_.size() > 1) {
      auto larger = pop();
      push(merge(std::move(larger), pop()));
    }
    SampleGroups groups(ways_);
    if (queue_.empty()) return groups;
    const auto final_groups = pop();
    for (std::size_t g = 0; g < final_groups.size(); ++g)
      for (auto i = final_groups[g].first; i >= 0; i = next_[static_cast<std::size_t>(i)])
        groups[g].push_back(i);
    for (auto& group : groups) std::sort(group.begin(), group.end());
    return groups;
  }

 private:
  void push(std::vector<Heap> groups) {
    const double least = groups.size() < ways_ ? 0 : groups.back().sum;
    const double spread = groups.front().sum - least;
    queue_.push({std::move(groups), spread, age_++});
  }

  std::vector<Heap> pop() {
    // priority_queue offers no moving pop; the order is by spread and age, which stay.
    auto groups = std::move(const_cast<Partial&>(queue_.top()).groups);
    queue_.pop();
    return groups;
  }

  // Lays `b` in reverse over `a`, so that heavy meets light; both are K long with empty groups.
  std::vector<Heap> merge(std::vector<Heap> a, const std::vector<Heap>& b) {
    const std::size_t start = ways_ - b.size();  // Where b's lightest group lands.
    for (std::size_t i = 0; i < b.size(); ++i) {
      const auto& light = b[b.size() - 1 - i];
      if (start + i < a.size()) {
        auto& heavy = a[start + i];
        heavy.sum += light.sum;
        next_[static_cast<std::size_t>(heavy.last)] = light.first;
        heavy.last = light.last;
      } else {
        a.push_back(light);
      }
    }
    std::stable_sort(a.begin(), a.end(),
                     [](const Heap& x, const Heap& y) { return x.sum > y.sum; });
    return a;
  }

  std::size_t ways_;
  std::vector<std::int32_t> next_;
  std::int64_t age_ = 0;
  std::priority_queue<Partial, std::vector<Partial>, SmallerSpread> queue_;
};

// A growing partial partition meets every sample left: some seconds at this product.
constexpr std::int64_t kMergesMax = 200'000'000;

SampleGroups longest_first(std::span<const Workload> workloads, std::int64_t microbatches) {
  std::vector<Workload> sums;
  sums.reserve(workloads.size());
  for (const auto& work : workloads) sums.push_back({0, work.encoder_ms + work.llm_ms});
  return llm_only_groups(sums, microbatches);
}

}  // namespace

SampleGroups karmarkar_karp_groups(std::span<const Workload> workloads, std::int64_t microbatches) {
  if (std::ssize(workloads) > kMergesMax / microbatches)
    return longest_first(workloads, microbatches);
  return Differencing(workloads, static_cast<std::size_t>(microbatches)).run();
}

}  // namespace troupe::balancer
