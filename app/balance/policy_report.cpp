#include "app/balance/policy_report.hpp"

#include <algorithm>

#include "engine/layout/simulated_training.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/simulate/predicted_costs.hpp"

namespace troupe::app {

namespace {

using balancer::Workload;

Workload forward_of(const scheduler::SampleWork& work) {
  return {work.encoder_forward_ms, work.llm_forward_ms};
}

// Forward work of each microbatch.
std::vector<Workload> loads_of(const MicrobatchList& microbatches,
                               const std::vector<scheduler::SampleWork>& units) {
  std::vector<Workload> loads;
  for (const auto& microbatch : microbatches) {
    auto& load = loads.emplace_back();
    for (const auto& part : microbatch.parts)
      for (const auto unit : part.samples)
        load += forward_of(units[static_cast<std::size_t>(unit)]);
  }
  return loads;
}

std::int64_t samples_in(const MicrobatchList& microbatches) {
  std::int64_t count = 0;
  for (const auto& microbatch : microbatches)
    for (const auto& part : microbatch.parts) count += std::ssize(part.samples);
  return count;
}

/// Loads of encoders are those of the first group: others are dealt by the same rule.
PolicyAnswer answer_of(const ParallelPlan& plan, const engine::SimulatedBatch& batch,
                       const std::vector<scheduler::SampleWork>& units) {
  PolicyAnswer answer;
  std::vector<Workload> encoder, llm;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    const auto loads = loads_of(batch.iteration.microbatches[r], units);
    const bool first = plan.replicas[r].pipeline == PipelineId{0} && plan.is_first(ReplicaId{r});
    if (plan.replicas[r].group == ModuleGroupId{0}) {
      encoder.insert(encoder.end(), loads.begin(), loads.end());
      for (const auto& load : loads)
        if (first) answer.encoder_loads.push_back(load.encoder_ms);
    }
    if (!plan.is_llm(ReplicaId{r})) continue;
    llm.insert(llm.end(), loads.begin(), loads.end());
    for (const auto& load : loads)
      if (first) answer.llm_loads.push_back(load.llm_ms);
    answer.dealt.push_back(samples_in(batch.iteration.microbatches[r]));
    answer.microbatches += static_cast<double>(batch.iteration.microbatches[r].size());
  }
  answer.microbatches /= static_cast<double>(answer.dealt.size());
  answer.encoder = encoder_spread(encoder);
  answer.llm = llm_spread(llm);
  answer.deferred = batch.prediction.deferred_samples;
  answer.rows_held_max = batch.prediction.held_rows;
  answer.step_ms = batch.step.step_ms;
  answer.lower_bound_ms = std::max(batch.lower_bound_ms, batch.pipeline_bound_ms);
  return answer;
}

void add(balancer::Spread& mean, const balancer::Spread& one, double share) {
  mean.mean_ms += share * one.mean_ms;
  mean.std_ms += share * one.std_ms;
  mean.max_ms = std::max(mean.max_ms, one.max_ms);
}

PolicyAnswer over_all(const std::vector<PolicyAnswer>& batches) {
  PolicyAnswer all;
  if (batches.empty()) return all;
  all.encoder_loads = batches.front().encoder_loads;
  all.llm_loads = batches.front().llm_loads;
  all.dealt = batches.front().dealt;
  const double share = 1 / static_cast<double>(batches.size());
  for (const auto& answer : batches) {
    all.microbatches += share * answer.microbatches;
    add(all.encoder, answer.encoder, share);
    add(all.llm, answer.llm, share);
    all.deferred += answer.deferred;
    all.rows_held_max = std::max(all.rows_held_max, answer.rows_held_max);
    all.step_ms += share * answer.step_ms;
    all.lower_bound_ms += share * answer.lower_bound_ms;
  }
  return all;
}

}  // namespace

Result<PolicyReport> report_policy(const std::string& policy, const PolicyQuestion& question,
                                   const std::function<void(std::size_t)>& on_batch) {
  auto options = question.options;
  options.policy = policy;
  engine::SimulatedTraining training(question.plan, options, question.costs);
  PolicyReport report{policy, {}, {}};
  for (const auto& samples : question.batches) {
    if (on_batch) on_batch(report.batches.size());
    const auto batch = training.step(samples);
    if (!batch.ok()) return batch.error();
    const auto& iteration = batch.value().iteration;
    const SampleUnits units(iteration.samples, iteration.pieces);
    const auto work = scheduler::sample_workloads(question.costs->model, units.shapes(),
                                                  scheduler::module_degrees(question.plan));
    if (!work.ok()) return work.error();
    report.batches.push_back(answer_of(question.plan, batch.value(), work.value()));
  }
  report.all = over_all(report.batches);
  return report;
}

}  // namespace troupe::app
