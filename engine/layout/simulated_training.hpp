// Training on paper: batches of shapes, dealt, cut, ordered and predicted by the code that trains,
// and run by the simulator.
//
// What `troupe plan`, `simulate`, `whatif` and `balance` say of a job is therefore said of the very
// plans that `troupe train` would carry out. Deterministic. Single owner, not thread-safe.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/iteration/microbatching.hpp"
#include "engine/iteration/pipeline_speeds.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/simulate/simulate_plan.hpp"
#include "scheduler/simulate/step_breakdown.hpp"

namespace troupe::engine {

/// One step on paper.
struct SimulatedBatch {
  IterationPlan iteration;
  scheduler::SimulatedStep step;
  Prediction prediction;      ///< What planning says of it; without noise.
  double lower_bound_ms = 0;  ///< Work of the busiest device.
  /// The same without noise and updates, with the shortest ways to and from every stage
  /// (`scheduler::lower_bound_ms`): closer where few microbatches fill and drain a pipeline.
  double pipeline_bound_ms = 0;
  /// Where the step goes; none without a timeline, or where a failure took the step.
  std::optional<scheduler::StepBreakdown> breakdown = {};
};

class SimulatedTraining {
 public:
  /// `plan` outlives this object. REQUIRES: costs.
  SimulatedTraining(const ParallelPlan& plan, MicrobatchingOptions options,
                    std::shared_ptr<const PlanningCosts> costs);

  /// The next step, over these samples in training order, which name who sees their source.
  /// Errors: as `scheduler::choose_decoders`, `Microbatching::plan` and `scheduler::simulate`.
  Result<SimulatedBatch> step(std::vector<SampleShape> samples,
                              const scheduler::SimulationOptions& options = {});

 private:
  /// `flow`: of the iteration's samples and pieces.
  double pipeline_bound_ms(const IterationPlan& iteration, const scheduler::RowFlow& flow,
                           const scheduler::SimulationCosts& costs) const;

  const ParallelPlan& plan_;
  bool splits_weight_gradient_;
  Microbatching microbatching_;
  PipelineSpeeds speeds_;
  std::int64_t batch_ = 0;
};

}  // namespace troupe::engine
