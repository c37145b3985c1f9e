#include "engine/layout/simulated_training.hpp"

#include <algorithm>
#include <utility>

#include "engine/iteration/pipeline_shares.hpp"
#include "scheduler/iteration/deliveries.hpp"
#include "scheduler/iteration/iteration_graph.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/layout/module_pipeline.hpp"
#include "scheduler/simulate/predicted_costs.hpp"

namespace troupe::engine {

namespace {

/// Of each replica of the plan, in its phase.
std::vector<double> replica_speeds(const ParallelPlan& plan, const std::vector<PhaseWork>& phases) {
  std::vector<double> speeds(plan.replicas.size());
  for (std::size_t g = 0; g < phases.size(); ++g) {
    const auto replicas = replicas_of(plan, ModuleGroupId{g});
    for (std::size_t r = 0; r < replicas.size(); ++r)
      speeds[replicas[r].index()] = 1 / phases[g].shares[r];
  }
  return speeds;
}

}  // namespace

SimulatedTraining::SimulatedTraining(const ParallelPlan& plan, MicrobatchingOptions options,
                                     std::shared_ptr<const PlanningCosts> costs)
    : plan_(plan),
      splits_weight_gradient_(scheduler::splits_weight_gradient(options.schedule)),
      microbatching_(plan, std::move(options), std::move(costs)),
      speeds_(plan.pipelines.size()) {}

Result<SimulatedBatch> SimulatedTraining::step(std::vector<SampleShape> samples,
                                               const scheduler::SimulationOptions& options) {
  if (auto decoded = scheduler::choose_decoders(plan_, samples); !decoded.ok())
    return std::move(decoded).error();
  auto dealt = microbatching_.deal({++batch_, 0, std::move(samples)}, speeds_);
  if (!dealt.ok()) return std::move(dealt).error();
  auto planned = microbatching_.plan(std::move(dealt).value());
  if (!planned.ok()) return std::move(planned).error();
  speeds_.note(shares_of(plan_, planned.value().prediction));
  SimulatedBatch batch{
      std::move(planned.value().iteration), {}, std::move(planned.value().prediction)};
  const BatchWork& known = *planned.value().work;
  // What the planner predicted with: also what encoders offload.
  const auto costs = scheduler::with_summed_parts(known.costs, plan_, *known.samples,
                                                  batch.iteration.microbatches);
  auto step = scheduler::simulate(plan_, batch.iteration, costs, options);
  if (!step.ok()) return std::move(step).error();
  batch.step = std::move(step).value();
  std::vector<double> work(plan_.devices.size());
  for (std::size_t s = 0; s < plan_.stages.size(); ++s)
    for (const DeviceId device : plan_.stages[s].devices)
      work[device.index()] += batch.step.stage_ms[s];
  batch.lower_bound_ms = *std::max_element(work.begin(), work.end());
  batch.pipeline_bound_ms = pipeline_bound_ms(batch.iteration, *known.flow, costs);
  if (options.record_timeline && batch.step.completed)
    batch.breakdown = scheduler::break_down(plan_, batch.iteration, batch.step,
                                            replica_speeds(plan_, known.phases));
  return batch;
}

double SimulatedTraining::pipeline_bound_ms(const IterationPlan& iteration,
                                            const scheduler::RowFlow& flow,
                                            const scheduler::SimulationCosts& costs) const {
  return scheduler::lower_bound_ms(
      scheduler::iteration_graph(plan_, flow, iteration.microbatches, iteration.messages,
                                 splits_weight_gradient_, costs.task_ms,
                                 scheduler::message_costs(plan_, costs))
          .tasks);
}

}  // namespace troupe::engine
