// What plans of one pipeline's samples cost: the task graph that training would run for each, and
// the estimate from loads that a search over sizes of microbatches asks.
//
// Pure. Used by microbatching alone; not thread-safe.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "balancer/loads/workload.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/iteration/deal_microbatches.hpp"
#include "scheduler/iteration/message_routes.hpp"
#include "scheduler/iteration/redistribution.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/layout/step_estimator.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::engine {

/// Rows that encoders hand to the llm for a sample.
TokenCount boundary_rows(const SampleShape& sample);

/// A plan's microbatches as parts: indices of `samples` in place of places in it. With
/// `splits_parts` an encoder's microbatch has one part per llm microbatch that it feeds, else one.
/// Samples without media go with the first part; empty microbatches are left out.
scheduler::ReplicaCut parts_of(const balancer::MicrobatchPlan& plan,
                               const std::vector<std::int32_t>& samples,
                               const std::vector<SampleShape>& shapes, bool splits_parts);

/// How a pipeline's batches are cut and ordered.
struct PipelineRules {
  PipelineId pipeline;
  scheduler::Schedule schedule;
  std::int64_t microbatches = 1;
  std::vector<std::int32_t> max_in_flight;  ///< Per stage of the layout; empty: no bound.
  bool splits_parts = false;
  std::optional<Route> boundary = {};  ///< Of rows between module groups; none: what takes least.
};

class PipelineCosts {
 public:
  /// `samples`: those of the pipeline, indices into `shapes`. All references outlive this object.
  PipelineCosts(const ParallelPlan& layout, PipelineRules rules,
                const scheduler::SimulationCosts& costs, const std::vector<std::int32_t>& samples,
                const std::vector<SampleShape>& shapes);

  /// Compute of a step; infinite where the plan breaks a bound, or where rows would wait longer
  /// than one microbatch for their llm microbatch.
  double step_ms(const balancer::MicrobatchPlan& plan) const;

  /// Steps from the loads of microbatches alone: each stage's task takes a constant and a share of
  /// the load on its side. Nothing where the schedule does not allow it (`StepEstimator::create`),
  /// or where there are fewer samples than microbatches. `total`: of all samples.
  std::optional<scheduler::StepEstimator> estimator(const balancer::Workload& total) const;

 private:
  struct Rate {
    double per_ms = 0;  ///< Of the load on the stage's side.
    double constant_ms = 0;
  };
  /// `stage`: of the pipeline, from 0; `samples`: of the layout's batch.
  double task_ms(StageId stage, const std::vector<std::int32_t>& samples,
                 scheduler::TaskKind kind) const;
  Rate rate_of(StageId stage, scheduler::TaskKind kind, double load) const;
  scheduler::TaskGraph graph(const balancer::MicrobatchPlan& plan) const;

  const ParallelPlan layout_;  ///< The pipeline alone.
  const StageId first_;        ///< Its first stage in the whole layout.
  PipelineRules rules_;        ///< `max_in_flight`: of its own stages.
  const scheduler::SimulationCosts& costs_;
  const std::vector<std::int32_t>& own_;
  std::vector<SampleShape> shapes_;
  std::vector<std::int32_t> numbers_;  ///< 0, 1, ...: places in `own_`.
  scheduler::RowFlow flow_;
  scheduler::MessageCost message_ms_;
  scheduler::RouteRules routes_;
};

}  // namespace troupe::engine
