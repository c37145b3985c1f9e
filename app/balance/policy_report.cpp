#include "app/balance/policy_report.hpp"

#include <algorithm>

#include "engine/layout/simulated_training.hpp"
#include "runtime/vocabulary/index.hpp"
#include "scheduler/cost/sample_costs.hpp"
#include "scheduler/iteration/stage_graph.hpp"

namespace troupe::app {

namespace {

using balancer::Workload;

// Per module group: forward milliseconds of each unit of a batch, as it weighs in every policy.
using ForwardTimes = std::vector<std::vector<double>>;

// Errors: as `scheduler::SampleSums::at`.
Result<ForwardTimes> forward_times(const ParallelPlan& plan, const scheduler::CostModel& model,
                                   const SampleUnits& units) {
  const auto degrees = scheduler::module_degrees(plan);
  const auto costs = scheduler::SampleSums(model, units.shapes()).at(degrees);
  if (!costs.ok()) return costs.error();
  ForwardTimes times;
  for (const ModuleGroup& group : plan.module_groups) {
    std::vector<scheduler::AlikeLayers> layers;
    for (const ModuleId module : group.modules) {
      const auto count = static_cast<std::int32_t>(plan.model.at(module).layers.size());
      costs.value().add({module, {0, count}}, degrees[module.index()], layers);
    }
    auto& own = times.emplace_back();
    for (std::size_t unit = 0; unit < units.size(); ++unit)
      own.push_back(costs.value().sample(layers, unit).forward);
  }
  return times;
}

// The encoders that stand for all of them where one figure is wanted: the group whose replicas have
// most to do, were these samples dealt evenly; the first of equal ones.
std::optional<std::size_t> busiest_encoders(const ParallelPlan& plan, const ForwardTimes& times,
                                            std::size_t samples) {
  std::optional<std::size_t> busiest;
  double most_ms = -1;
  for (std::size_t g = 0; g + 1 < plan.module_groups.size(); ++g) {
    double ms = 0;
    for (std::size_t s = 0; s < samples; ++s) ms += times[g][s];
    ms /= static_cast<double>(engine::replicas_of(plan, ModuleGroupId{g}).size());
    if (ms > most_ms) most_ms = ms, busiest = g;
  }
  return busiest;
}

double load_of(const Microbatch& microbatch, const std::vector<double>& unit_ms) {
  double ms = 0;
  for (const Part& part : microbatch.parts)
    for (const auto unit : part.samples) ms += unit_ms[at(unit)];
  return ms;
}

PhaseAnswer phase_of(const ParallelPlan& plan, ModuleGroupId group,
                     const engine::SimulatedBatch& batch, const std::vector<double>& unit_ms) {
  PhaseAnswer phase;
  phase.name = plan.module_groups[group.index()].name;
  std::vector<Workload> all;
  for (const ReplicaId replica : engine::replicas_of(plan, group)) {
    auto& own = phase.loads.emplace_back();
    for (const Microbatch& microbatch : batch.iteration.microbatches[replica.index()])
      own.push_back(load_of(microbatch, unit_ms));
    for (const double ms : own) all.push_back({ms, 0});
  }
  phase.spread = balancer::encoder_spread(all);
  phase.balance = batch.prediction.phases[group.index()];
  phase.far_rows = batch.prediction.far_rows[group.index()];
  return phase;
}

std::int64_t samples_in(const MicrobatchList& microbatches) {
  std::int64_t count = 0;
  for (const auto& microbatch : microbatches)
    for (const auto& part : microbatch.parts) count += std::ssize(part.samples);
  return count;
}

PolicyAnswer answer_of(const ParallelPlan& plan, const engine::SimulatedBatch& batch,
                       const ForwardTimes& times) {
  PolicyAnswer answer;
  for (std::size_t g = 0; g < plan.module_groups.size(); ++g)
    answer.phases.push_back(phase_of(plan, ModuleGroupId{g}, batch, times[g]));
  answer.dealt.resize(plan.pipelines.size());
  for (std::size_t r = 0; r < plan.replicas.size(); ++r)
    if (plan.is_llm(ReplicaId{r}))
      answer.dealt[plan.replicas[r].pipeline.index()] +=
          samples_in(batch.iteration.microbatches[r]);
  for (const auto& replica : answer.llm().loads)
    answer.microbatches += static_cast<double>(replica.size());
  answer.microbatches /= static_cast<double>(answer.llm().loads.size());
  answer.deferred = batch.prediction.deferred_samples;
  answer.rows_held_max = batch.prediction.held_rows;
  answer.step_ms = batch.step.step_ms;
  answer.lower_bound_ms = std::max(batch.lower_bound_ms, batch.pipeline_bound_ms);
  return answer;
}

void add(PhaseAnswer& mean, const PhaseAnswer& one, double share) {
  mean.spread.mean_ms += share * one.spread.mean_ms;
  mean.spread.std_ms += share * one.spread.std_ms;
  mean.spread.max_ms = std::max(mean.spread.max_ms, one.spread.max_ms);
  mean.balance.drawn += share * one.balance.drawn;
  mean.balance.planned += share * one.balance.planned;
  mean.balance.bound += share * one.balance.bound;
  mean.far_rows.planned += share * one.far_rows.planned;
  mean.far_rows.bound += share * one.far_rows.bound;
}

PhaseAnswer phase_over_all(const std::vector<PolicyAnswer>& batches, std::size_t group) {
  const PhaseAnswer& first = batches.front().phases[group];
  PhaseAnswer all{first.name, {}, {0, 0, 0}, {}, first.loads};
  for (const auto& answer : batches)
    add(all, answer.phases[group], 1 / static_cast<double>(batches.size()));
  return all;
}

PolicyAnswer over_all(const std::vector<PolicyAnswer>& batches) {
  PolicyAnswer all;
  if (batches.empty()) return all;
  all.dealt = batches.front().dealt;
  for (std::size_t g = 0; g < batches.front().phases.size(); ++g)
    all.phases.push_back(phase_over_all(batches, g));
  const double share = 1 / static_cast<double>(batches.size());
  for (const auto& answer : batches) {
    all.microbatches += share * answer.microbatches;
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
  PolicyReport report{policy, {}, {}, {}, {}};
  for (const auto& samples : question.batches) {
    if (on_batch) on_batch(report.batches.size());
    const auto batch = training.step(samples);
    if (!batch.ok()) return batch.error();
    const auto& iteration = batch.value().iteration;
    const SampleUnits units(iteration.samples, iteration.pieces);
    const auto times = forward_times(question.plan, question.costs->model, units);
    if (!times.ok()) return times.error();
    if (report.batches.empty())
      report.encoders = busiest_encoders(question.plan, times.value(), units.whole());
    report.exchange.add(batch.value().prediction);
    report.batches.push_back(answer_of(question.plan, batch.value(), times.value()));
  }
  report.all = over_all(report.batches);
  return report;
}

}  // namespace troupe::app
