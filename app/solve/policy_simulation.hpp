// A pipeline of even encoder and llm stages as balancing policies see it: what a plan's step takes.
// `auto` chooses by what this simulation says.
//
// Pure. Used by `troupe solve simulate` and by the measurements of policies; jobs, whose stages are
// cut by layers, are simulated by engine/layout/simulated_training.hpp.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "balancer/loads/workload.hpp"
#include "balancer/microbatches/policies.hpp"
#include "scheduler/iteration/list_schedule.hpp"
#include "scheduler/layout/module_pipeline.hpp"
#include "scheduler/layout/step_estimator.hpp"

namespace troupe::app {

/// What a simulation takes for granted of the machine.
struct SimulatedMachine {
  double backward_over_forward = 2;  ///< Half of it for inputs, half for weights; >= 0.
  double link_ms = 0;                ///< Of a message between devices; >= 0.
  std::int32_t max_in_flight = 0;    ///< Microbatches that a stage has room for; 0: all.

  friend bool operator==(const SimulatedMachine&, const SimulatedMachine&) = default;
};

class PolicySimulation {
 public:
  PolicySimulation(std::span<const balancer::Workload> samples,
                   const scheduler::ModulePipeline& shape, std::string schedule,
                   const SimulatedMachine& machine = {});

  scheduler::PipelineTimes times(const balancer::MicrobatchPlan& plan) const;
  scheduler::TaskGraph graph(const balancer::MicrobatchPlan& plan) const;

  /// Errors: as `scheduler::make_schedule`.
  Result<scheduler::Timeline> run(const balancer::MicrobatchPlan& plan) const;

  /// Makes `options` ask this simulation, which must outlive them: number of stages, cost and,
  /// for `auto` on the default machine where the schedule allows it, estimate. REQUIRES:
  /// `options.microbatches` >= 1.
  void guide(const std::string& policy, balancer::PolicyOptions& options);

 private:
  std::vector<scheduler::ModuleWork> work_;
  scheduler::ModulePipeline shape_;
  std::string schedule_;
  SimulatedMachine machine_;
  std::optional<scheduler::StepEstimator> estimator_;
};

}  // namespace troupe::app
