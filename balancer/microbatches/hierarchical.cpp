#include "balancer/microbatches/hierarchical.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <tuple>

#include "balancer/loads/load_tree.hpp"

namespace troupe::balancer {

namespace {

// Orders microbatches by encoder load, then by LLM load: the tie rule of the min-max greedy.
struct EncoderFirst {
  double encoder_ms = 0;
  double llm_ms = 0;
  friend bool operator<(const EncoderFirst& a, const EncoderFirst& b) {
    return std::tie(a.encoder_ms, a.llm_ms) < std::tie(b.encoder_ms, b.llm_ms);
  }
};

// Sample indices: the coarse half, then the fine half, each by descending encoder workload.
std::vector<std::int32_t> stratified_order(std::span<const Workload> workloads) {
  const auto at = [&](std::int32_t i) { return workloads[static_cast<std::size_t>(i)]; };
  std::vector<std::int32_t> order(workloads.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return at(a).llm_ms > at(b).llm_ms; });
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(order.size() / 2);
  const auto heavier = [&](std::int32_t a, std::int32_t b) {
    if (at(a).encoder_ms != at(b).encoder_ms) return at(a).encoder_ms > at(b).encoder_ms;
    return a < b;
  };
  std::sort(order.begin(), middle, heavier);
  std::sort(middle, order.end(), heavier);
  return order;
}

MicrobatchPlan plan_with(std::span<const Workload> workloads, std::int64_t microbatches,
                         bool deferral) {
  auto groups = assign_stratified(workloads, microbatches);
  return deferral ? defer_in_pairs(workloads, std::move(groups))
                  : without_deferral(std::move(groups));
}

}  // namespace

std::int64_t effective_microbatches(std::span<const Workload> workloads, std::int64_t microbatches,
                                    std::optional<std::int64_t> shared) {
  if (shared) return std::min(*shared, microbatches);
  double largest = 0;
  for (const auto& workload : workloads) largest = std::max(largest, workload.encoder_ms);
  return effective_microbatches(total(workloads).encoder_ms, largest, microbatches);
}

std::int64_t effective_microbatches(double sum, double largest, std::int64_t microbatches) {
  if (largest <= 0) return microbatches;
  // The tolerance keeps ten equal samples ten, whatever their sum rounds to.
  const double fit = sum / largest * (1 + 1e-12);
  if (fit >= static_cast<double>(microbatches)) return microbatches;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(fit));
}

SampleGroups assign_stratified(std::span<const Workload> workloads, std::int64_t microbatches) {
  const auto count = static_cast<std::size_t>(microbatches);
  SampleGroups groups(count);
  LoadTree<EncoderFirst> by_encoder(count, {}, {HUGE_VAL, HUGE_VAL});
  LoadTree<double> by_llm(count);
  for (const auto sample : stratified_order(workloads)) {
    const auto& work = workloads[static_cast<std::size_t>(sample)];
    const auto group = work.encoder_ms > 0 ? by_encoder.least() : by_llm.least();
    groups[group].push_back(sample);
    const auto load = by_encoder.key(group);
    by_encoder.set(group, {load.encoder_ms + work.encoder_ms, load.llm_ms + work.llm_ms});
    by_llm.set(group, load.llm_ms + work.llm_ms);
  }
  for (auto& group : groups) std::sort(group.begin(), group.end());
  return groups;
}

Result<MicrobatchPlan> assign_hierarchical(std::span<const Workload> workloads,
                                           const HierarchicalOptions& options) {
  if (auto fine = check_workloads(workloads); !fine.ok()) return fine.error();
  if (auto fine = check_group_count(options.microbatches, "microbatches"); !fine.ok())
    return fine.error();
  const double cap = options.llm_cap_ms.value_or(HUGE_VAL);
  if (!(cap > 0))
    return Error{Errc::invalid_argument, "the cap of an LLM microbatch must be > 0", "llm_cap", {}};
  const auto largest_llm = [&](const MicrobatchPlan& plan) {
    return llm_spread(group_loads(workloads, plan.llm)).max_ms;
  };
  const auto effective =
      effective_microbatches(workloads, options.microbatches, options.shared_microbatches);
  auto plan = plan_with(workloads, effective, options.deferral);
  if (largest_llm(plan) <= cap) return plan;
  if (effective < options.microbatches)
    plan = plan_with(workloads, options.microbatches, options.deferral);
  const double largest = largest_llm(plan);
  if (largest <= cap) return plan;
  return Error{Errc::infeasible,
               "the largest LLM microbatch has " + std::to_string(largest) + " ms with all " +
                   std::to_string(options.microbatches) + " microbatches, above the cap of " +
                   std::to_string(cap) + " ms",
               "llm_cap", "use more microbatches, or raise the cap"};
}

}  // namespace troupe::balancer
