// A pipeline of even encoder and llm stages as balancing policies see it: what a plan's step takes.
// `auto` chooses by what this simulation says.
//
// Pure. Used by `troupe solve simulate` and by the measurements of policies; jobs, whose stages are
// cut by layers, are simulated by engine/simulated_training.hpp.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "balancer/policies.hpp"
#include "balancer/workload.hpp"
#include "scheduler/list_schedule.hpp"
#include "scheduler/module_pipeline.hpp"
#include "scheduler/step_estimator.hpp"

namespace troupe::app {

class PolicySimulation {
 public:
  PolicySimulation(std::span<const balancer::Workload> samples,
                   const scheduler::ModulePipeline& shape, std::string schedule);

  scheduler::PipelineTimes times(const balancer::MicrobatchPlan& plan) const;
  scheduler::TaskGraph graph(const balancer::MicrobatchPlan& plan) const;

  /// Errors: as `scheduler::make_schedule`.
  Result<scheduler::Timeline> run(const balancer::MicrobatchPlan& plan) const;

  /// Makes `options` ask this simulation, which must outlive them: number of stages, cost and,
  /// for `auto` where the schedule allows it, estimate. REQUIRES: `options.microbatches` >= 1.
  void guide(const std::string& policy, balancer::PolicyOptions& options);

 private:
  std::vector<scheduler::ModuleWork> work_;
  scheduler::ModulePipeline shape_;
  std::string schedule_;
  std::optional<scheduler::StepEstimator> estimator_;
};

}  // namespace troupe::app
