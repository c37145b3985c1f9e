#include "engine/iteration/cut_balance.hpp"

#include <algorithm>
#include <map>

#include "balancer/microbatches/baselines.hpp"
#include "engine/iteration/pipeline_costs.hpp"
#include "runtime/vocabulary/index.hpp"

namespace troupe::engine {

namespace {

double largest_over_mean(const balancer::Spread& spread) {
  return spread.mean_ms > 0 ? spread.max_ms / spread.mean_ms : 1;
}

double imbalance_of(std::span<const balancer::Workload> workloads,
                    const balancer::MicrobatchPlan& plan) {
  const auto encoder = balancer::group_loads(workloads, plan.encoder);
  const auto llm = balancer::group_loads(workloads, plan.llm);
  return std::max(largest_over_mean(balancer::encoder_spread(encoder)),
                  largest_over_mean(balancer::llm_spread(llm)));
}

}  // namespace

std::vector<balancer::Workload> pick(std::span<const balancer::Workload> all,
                                     std::span<const std::int32_t> samples) {
  std::vector<balancer::Workload> picked;
  for (const auto sample : samples) picked.push_back(all[at(sample)]);
  return picked;
}

void note_cut(std::span<const SampleShape> samples, const BatchWork& work,
              std::span<const std::int32_t> own, const balancer::MicrobatchPlan& plan,
              std::int64_t microbatches, balancer::Workload& total, Prediction& prediction) {
  const auto workloads = pick(work.workloads, own);
  // Not as measured: a pipeline is slow by what its devices take for this.
  total += balancer::total(pick(work.profile, own));
  const auto plain =
      balancer::without_deferral(balancer::in_order_groups(own.size(), microbatches));
  prediction.imbalance_in_order =
      std::max(prediction.imbalance_in_order, imbalance_of(workloads, plain));
  prediction.imbalance = std::max(prediction.imbalance, imbalance_of(workloads, plan));
  const auto encoder = balancer::group_of(plan.encoder, own.size()),
             llm = balancer::group_of(plan.llm, own.size());
  std::map<std::int32_t, TokenCount> held;
  for (std::size_t s = 0; s < own.size(); ++s) {
    if (llm[s] == encoder[s]) continue;
    ++prediction.deferred_samples;
    if (llm[s] > encoder[s]) held[encoder[s]] += boundary_rows(samples[at(own[s])]);
  }
  for (const auto& [microbatch, rows] : held)
    prediction.held_rows = std::max(prediction.held_rows, rows);
}

}  // namespace troupe::engine
