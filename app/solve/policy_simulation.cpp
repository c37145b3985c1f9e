#include "app/solve/policy_simulation.hpp"

#include <limits>
#include <utility>

#include "scheduler/iteration/schedules.hpp"

namespace troupe::app {

namespace {

std::vector<scheduler::ModuleWork> work_of(std::span<const balancer::Workload> loads) {
  std::vector<scheduler::ModuleWork> work;
  work.reserve(loads.size());
  for (const auto& load : loads) work.push_back({load.encoder_ms, load.llm_ms});
  return work;
}

}  // namespace

PolicySimulation::PolicySimulation(std::span<const balancer::Workload> samples,
                                   const scheduler::ModulePipeline& shape, std::string schedule,
                                   const SimulatedMachine& machine)
    : work_(work_of(samples)), shape_(shape), schedule_(std::move(schedule)), machine_(machine) {}

scheduler::PipelineTimes PolicySimulation::times(const balancer::MicrobatchPlan& plan) const {
  auto times = scheduler::module_pipeline(work_, plan.encoder, plan.llm, shape_);
  times.link_ms = machine_.link_ms;
  const double factor = machine_.backward_over_forward / SimulatedMachine().backward_over_forward;
  for (auto& stage : times.stages)
    for (auto* gradients : {&stage.input_grad_ms, &stage.weight_grad_ms})
      for (double& ms : *gradients) ms *= factor;
  return times;
}

scheduler::TaskGraph PolicySimulation::graph(const balancer::MicrobatchPlan& plan) const {
  return scheduler::task_graph(times(plan), scheduler::splits_weight_gradient(schedule_));
}

Result<scheduler::Timeline> PolicySimulation::run(const balancer::MicrobatchPlan& plan) const {
  std::vector<std::int32_t> bounds;
  if (machine_.max_in_flight > 0)
    bounds.assign(static_cast<std::size_t>(shape_.encoder_stages + shape_.llm_stages),
                  machine_.max_in_flight);
  return scheduler::make_schedule(graph(plan), schedule_, bounds);
}

void PolicySimulation::guide(const std::string& policy, balancer::PolicyOptions& options) {
  options.pipeline_stages = shape_.encoder_stages + shape_.llm_stages;
  options.cost = [this](const balancer::MicrobatchPlan& plan) {
    const auto timeline = run(plan);
    return timeline.ok() ? timeline.value().step_ms : std::numeric_limits<double>::infinity();
  };
  if (policy != "auto" || machine_ != SimulatedMachine()) return;
  estimator_ = scheduler::StepEstimator::create(shape_, schedule_,
                                                static_cast<std::int32_t>(options.microbatches));
  if (!estimator_) return;
  options.estimate = [this](std::span<const balancer::Workload> loads) {
    return (*estimator_)(work_of(loads));
  };
}

}  // namespace troupe::app
