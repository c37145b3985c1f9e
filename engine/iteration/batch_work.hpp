// What the samples of a batch weigh, and what its parts cost. Values.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "balancer/loads/workload.hpp"
#include "engine/iteration/node_times.hpp"
#include "engine/iteration/phase_exchange.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_pieces.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/cost/cost_model.hpp"
#include "scheduler/cost/sample_costs.hpp"
#include "scheduler/iteration/redistribution.hpp"
#include "scheduler/simulate/predicted_costs.hpp"

namespace troupe::engine {

/// What is known about the cost of layers, and how rows travel.
struct PlanningCosts {
  scheduler::CostModel model;
  scheduler::PredictionOptions options;
  Bytes device_memory{};  ///< Of one device; 0: no bound.
};

/// What each sample weighs, and the functions that cost its parts.
struct BatchWork {
  std::vector<balancer::Workload> profile;    ///< Weights as the profile says.
  std::vector<balancer::Workload> workloads;  ///< The same as measured times correct them.
  scheduler::SimulationCosts costs;  ///< Corrected; empty functions where no costs are known.
  /// The same with rows that arrive, for bounds of memory; empty functions where there are none.
  scheduler::SimulationCosts bound_costs;
  /// Per stage, for who cuts (llm_cap.hpp); empty where there are none, or a cut is there already.
  std::vector<double> rooms_in_flight = {};
  std::vector<PhaseWork> phases;         ///< Per module group, as the profile says.
  std::vector<SamplePiece> pieces = {};  ///< That parts may name behind the samples.
  NodeTimes times = {};                  ///< Nodes that are slow: in `phases`, not in `costs`.
  std::shared_ptr<const scheduler::RowFlow> flow = {};  ///< Of samples and pieces.
  /// What these take at the degrees of all stages; none: no costs are known.
  std::optional<scheduler::SampleCosts> samples = {};
};

/// Milliseconds of each sample in all encoders and projectors, and in the llm, at the degrees of
/// `plan`; where no costs are known (null) its rows. `sums`: of these samples, and of their pieces
/// behind them, if there are any.
/// Errors: as `scheduler::sample_workloads`.
Result<std::vector<balancer::Workload>> weigh_samples(const ParallelPlan& plan,
                                                      scheduler::SampleSums* sums,
                                                      std::span<const SampleShape> samples);

/// What a byte takes between devices of a node, as a share of what it takes between nodes: 0 where
/// the profile does not know both, at most 1.
double inside_node_share(const scheduler::DeviceSpeeds& speeds);

/// What samples and their pieces take in each module group, by the profile (`costs`: of all units);
/// where no costs are known (null) their rows. A sample with rows there takes something.
/// `element_bytes`: of a number of the rows between stages. `inside_node`: of `PhaseWork`. A
/// replica is as fast as its nodes are (`times`).
std::vector<PhaseWork> phase_works(const ParallelPlan& plan, const SampleUnits& units,
                                   const scheduler::SampleCosts* costs, double element_bytes = 4,
                                   double inside_node = 0, const NodeTimes& times = {});

}  // namespace troupe::engine
