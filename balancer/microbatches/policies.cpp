#include "balancer/microbatches/policies.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "balancer/microbatches/baselines.hpp"
#include "balancer/microbatches/deferral_search.hpp"
#include "balancer/microbatches/hierarchical.hpp"
#include "balancer/microbatches/partition.hpp"
#include "balancer/microbatches/partition_search.hpp"
#include "balancer/microbatches/portfolio.hpp"
#include "balancer/microbatches/taper.hpp"
#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::balancer {

namespace {

using Samples = std::span<const Workload>;
using Plan = Result<MicrobatchPlan>;

struct Policy {
  PolicyInfo info;
  Plan (*plan)(Samples, const PolicyOptions&);
};

SearchBudget budget(const PolicyOptions& options) {
  return {.evaluations_max = options.evaluations_max * 1000};
}

// The plan with the effective K, or with the user's where that breaks the cap.
template <class Planner>
Plan within_cap(Samples samples, const PolicyOptions& options, Planner planner) {
  const auto effective =
      effective_microbatches(samples, options.microbatches, options.shared_microbatches);
  MicrobatchPlan plan = planner(effective);
  const double largest = llm_spread(group_loads(samples, plan.llm)).max_ms;
  if (effective == options.microbatches || largest <= options.llm_cap_ms.value_or(HUGE_VAL))
    return plan;
  return planner(options.microbatches);
}

// With a cost: the cheapest of the plans with the effective K and with the user's, with and without
// what they defer. Even microbatches are no gain where fewer of them fill and drain longer, or
// where a backward waits for rows that were deferred.
template <class Planner>
Plan where_it_pays(Samples samples, const PolicyOptions& options, Planner planner) {
  if (!options.cost) return within_cap(samples, options, planner);
  const double cap = options.llm_cap_ms.value_or(HUGE_VAL);
  std::optional<MicrobatchPlan> best;
  double least = HUGE_VAL;
  const auto offer = [&](MicrobatchPlan plan) {
    if (llm_spread(group_loads(samples, plan.llm)).max_ms > cap) return;
    const double cost = options.cost(plan);
    if (best && !(cost < least)) return;
    least = cost;
    best = std::move(plan);
  };
  const auto effective =
      effective_microbatches(samples, options.microbatches, options.shared_microbatches);
  for (const auto count : {effective, options.microbatches}) {
    auto plan = planner(count);
    auto whole = without_deferral(plan.encoder);
    offer(std::move(plan));
    offer(std::move(whole));
    if (effective == options.microbatches) break;
  }
  return best ? std::move(*best) : planner(options.microbatches);
}

Plan plan_random(Samples samples, const PolicyOptions& options) {
  return without_deferral(random_groups(samples.size(), options.microbatches, options.seed));
}
Plan plan_in_order(Samples samples, const PolicyOptions& options) {
  return without_deferral(in_order_groups(samples.size(), options.microbatches));
}
Plan plan_disttrain(Samples samples, const PolicyOptions& options) {
  return without_deferral(disttrain_groups(samples, options.microbatches, options.pipeline_stages));
}
Plan plan_llm_only(Samples samples, const PolicyOptions& options) {
  return without_deferral(llm_only_groups(samples, options.microbatches));
}
Plan plan_karmarkar_karp(Samples samples, const PolicyOptions& options) {
  return without_deferral(karmarkar_karp_groups(samples, options.microbatches));
}
Plan plan_dflop(Samples samples, const PolicyOptions& options) {
  return without_deferral(partition_lpt(equally_binding(samples), options.microbatches));
}
Plan plan_hierarchical(Samples samples, const PolicyOptions& options) {
  return assign_hierarchical(
      samples, {options.microbatches, false, options.llm_cap_ms, options.shared_microbatches});
}
Plan plan_deferral(Samples samples, const PolicyOptions& options) {
  return assign_hierarchical(
      samples, {options.microbatches, true, options.llm_cap_ms, options.shared_microbatches});
}
Plan plan_dflop_search(Samples samples, const PolicyOptions& options) {
  return without_deferral(
      partition_search(equally_binding(samples), options.microbatches, budget(options)));
}
Plan plan_deferral_exchange(Samples samples, const PolicyOptions& options) {
  return where_it_pays(samples, options, [&](std::int64_t microbatches) {
    return defer_with_exchange(samples, assign_stratified(samples, microbatches));
  });
}
Plan plan_deferral_chain(Samples samples, const PolicyOptions& options) {
  return where_it_pays(samples, options, [&](std::int64_t microbatches) {
    return defer_in_chain(samples, assign_stratified(samples, microbatches));
  });
}
Plan plan_balanced_chain(Samples samples, const PolicyOptions& options) {
  return where_it_pays(samples, options, [&](std::int64_t microbatches) {
    return defer_in_chain(
        samples, partition_search(equally_binding(samples), microbatches, budget(options)));
  });
}
Plan plan_tapered(Samples samples, const PolicyOptions& options) {
  const auto sizes = taper_sizes(default_taper(options.pipeline_stages), options.microbatches);
  return without_deferral(tapered_partition(equally_binding(samples), sizes, budget(options)));
}
Plan plan_auto(Samples samples, const PolicyOptions& options) {
  auto choice = best_of_portfolio(samples, options);
  if (!choice.ok()) return choice.error();
  return std::move(choice).value().plan;
}

const std::vector<Policy>& table() {
  static const std::vector<Policy> kTable{
      {{"random", "Equal counts in an order shuffled from the seed.", {1}}, plan_random},
      {{"in-order", "Equal counts in the order of arrival.", {1}}, plan_in_order},
      {{"disttrain", "Order of arrival, microbatches reordered to fill gaps (DistTrain).", {1}},
       plan_disttrain},
      {{"llm-only", "Longest first on the LLM workload alone.", {4}}, plan_llm_only},
      {{"karmarkar-karp", "Largest differencing on encoder + LLM work.", {4, 0, 0.25}},
       plan_karmarkar_karp},
      {{"dflop", "Least largest encoder or LLM sum, longest first (DFLOP 3.4).", {6}}, plan_dflop},
      {{"hierarchical", "Effective K and stratified encoder balance (Entrain 4.5.1).", {6}},
       plan_hierarchical},
      {{"deferral", "hierarchical, then pairwise deferral of LLM work (Entrain 4.5.2).", {8, 400}},
       plan_deferral},
      {{"dflop-search", "dflop, then exchanges between two buckets at a time.", {6, 10}, true},
       plan_dflop_search},
      {{"deferral-exchange", "deferral with exchanges both ways in every pair.", {8, 400}},
       plan_deferral_exchange},
      {{"deferral-chain", "deferral where every microbatch may hand work to the next.", {10, 1000}},
       plan_deferral_chain},
      {{"balanced-chain",
        "dflop-search on the encoder side, deferral-chain on the LLM's.",
        {10, 1000},
        true},
       plan_balanced_chain},
      {{"tapered",
        "dflop-search with small first and last microbatches: less filling, draining.",
        {5, 10},
        true},
       plan_tapered},
      {{"auto", "The best of all the above by cost, then local search.", {}, true}, plan_auto},
  };
  return kTable;
}

}  // namespace

const std::vector<PolicyInfo>& policies() {
  static const std::vector<PolicyInfo> kInfos = [] {
    std::vector<PolicyInfo> infos;
    for (const auto& policy : table()) infos.push_back(policy.info);
    return infos;
  }();
  return kInfos;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const auto& policy : policies()) names.push_back(policy.name);
  return names;
}

Status check_llm_cap(std::string_view policy, std::span<const Workload> workloads,
                     const MicrobatchPlan& plan, const PolicyOptions& options) {
  if (!options.llm_cap_ms) return Done{};
  const double largest = llm_spread(group_loads(workloads, plan.llm)).max_ms;
  if (largest <= *options.llm_cap_ms) return Done{};
  return Error{Errc::infeasible,
               "the largest LLM microbatch of '" + std::string(policy) + "' has " +
                   std::to_string(largest) + " ms, above the cap of " +
                   std::to_string(*options.llm_cap_ms) + " ms",
               "balancer.policy", "use more microbatches, another policy, or raise the cap"};
}

Result<MicrobatchPlan> assign_microbatches(std::string_view policy,
                                           std::span<const Workload> workloads,
                                           const PolicyOptions& options) {
  if (auto fine = check_workloads(workloads); !fine.ok()) return fine.error();
  if (auto fine = check_group_count(options.microbatches, "microbatches"); !fine.ok())
    return fine.error();
  const auto found = std::find_if(table().begin(), table().end(), [&](const Policy& candidate) {
    return candidate.info.name == policy;
  });
  if (found == table().end())
    return Error{Errc::not_found, "no balancing policy is called '" + std::string(policy) + "'",
                 "balancer.policy", name_fix(policy, policy_names())};
  auto plan = found->plan(workloads, options);
  if (!plan.ok()) return plan;
  if (auto fits = check_llm_cap(policy, workloads, plan.value(), options); !fits.ok())
    return fits.error();
  return plan;
}

}  // namespace troupe::balancer
