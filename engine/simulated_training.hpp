// Training on paper: batches of shapes, dealt, cut, ordered and predicted by the code that trains,
// and run by the simulator.
//
// What `troupe plan`, `simulate` and `whatif` say of a job is therefore said of the very plans that
// `troupe train` would carry out. Deterministic. Single owner, not thread-safe.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/dealing.hpp"
#include "engine/microbatching.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/simulate_plan.hpp"

namespace troupe::engine {

/// One step on paper.
struct SimulatedBatch {
  IterationPlan iteration;
  scheduler::SimulatedStep step;
  double lower_bound_ms = 0;  ///< Work of the busiest device.
};

class SimulatedTraining {
 public:
  /// `plan` outlives this object. `lag`: the deal of a batch knows the batches up to so many before
  /// it; in training `data.prefetch` + 1. REQUIRES: costs, lag >= 1.
  SimulatedTraining(const ParallelPlan& plan, MicrobatchingOptions options,
                    std::shared_ptr<const PlanningCosts> costs, std::int64_t lag);

  /// The next step, over these samples in training order.
  /// Errors: as `Microbatching::plan` and `scheduler::simulate`.
  Result<SimulatedBatch> step(std::vector<SampleShape> samples,
                              const scheduler::SimulationOptions& options = {});

 private:
  const ParallelPlan& plan_;
  std::shared_ptr<const PlanningCosts> costs_;
  Microbatching microbatching_;
  Dealing dealing_;
  std::int64_t batch_ = 0;
};

}  // namespace troupe::engine
