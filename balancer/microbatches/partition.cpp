#include "balancer/microbatches/partition.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "balancer/loads/load_tree.hpp"

namespace troupe::balancer {

namespace {

double one_workload_bound(std::vector<double> sizes, std::size_t bucket_count) {
  if (sizes.empty()) return 0;
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  const double sum = std::accumulate(sizes.rbegin(), sizes.rend(), 0.0);
  double bound = std::max(sizes.front(), sum / static_cast<double>(bucket_count));
  const std::size_t fullest = (sizes.size() + bucket_count - 1) / bucket_count;
  bound = std::max(
      bound,
      std::accumulate(sizes.rbegin(), sizes.rbegin() + static_cast<std::ptrdiff_t>(fullest), 0.0));
  if (sizes.size() > bucket_count)
    bound = std::max(bound, sizes[bucket_count - 1] + sizes[bucket_count]);
  return bound;
}

// Buckets looked at in all: a second or two.
constexpr std::int64_t kLooksMax = 2'000'000'000;

std::size_t best_bucket(const std::vector<Workload>& loads, const Workload& work) {
  std::size_t best = 0;
  double least = 0;
  for (std::size_t b = 0; b < loads.size(); ++b) {
    const double larger =
        std::max(loads[b].encoder_ms + work.encoder_ms, loads[b].llm_ms + work.llm_ms);
    if (b == 0 || larger < least) {
      best = b;
      least = larger;
    }
  }
  return best;
}

}  // namespace

std::vector<Workload> equally_binding(std::span<const Workload> workloads) {
  std::vector<Workload> scaled(workloads.begin(), workloads.end());
  const auto sum = total(workloads);
  if (sum.encoder_ms <= 0 || sum.llm_ms <= 0) return scaled;
  for (auto& sample : scaled) sample.llm_ms *= sum.encoder_ms / sum.llm_ms;
  return scaled;
}

double largest_sum(std::span<const Workload> workloads, const SampleGroups& buckets) {
  double largest = 0;
  for (const auto& load : group_loads(workloads, buckets))
    largest = std::max({largest, load.encoder_ms, load.llm_ms});
  return largest;
}

double partition_lower_bound(std::span<const Workload> workloads, std::int64_t bucket_count) {
  std::vector<double> encoder;
  std::vector<double> llm;
  for (const auto& workload : workloads) {
    encoder.push_back(workload.encoder_ms);
    llm.push_back(workload.llm_ms);
  }
  const auto count = static_cast<std::size_t>(bucket_count);
  return std::max(one_workload_bound(std::move(encoder), count),
                  one_workload_bound(std::move(llm), count));
}

SampleGroups partition_lpt(std::span<const Workload> workloads, std::int64_t bucket_count) {
  std::vector<std::int32_t> order(workloads.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](std::int32_t i) { return workloads[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return at(a).encoder_ms + at(a).llm_ms > at(b).encoder_ms + at(b).llm_ms;
  });
  const auto count = static_cast<std::size_t>(bucket_count);
  std::vector<Workload> loads(count);
  SampleGroups buckets(count);
  const bool look_at_all = std::ssize(workloads) <= kLooksMax / bucket_count;
  LoadTree<double> larger(look_at_all ? 1 : count);
  for (const auto sample : order) {
    const auto best = look_at_all ? best_bucket(loads, at(sample)) : larger.least();
    loads[best] += at(sample);
    if (!look_at_all) larger.set(best, std::max(loads[best].encoder_ms, loads[best].llm_ms));
    buckets[best].push_back(sample);
  }
  for (auto& bucket : buckets) std::sort(bucket.begin(), bucket.end());
  return buckets;
}

}  // namespace troupe::balancer
