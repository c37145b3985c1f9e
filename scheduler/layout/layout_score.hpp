// What a candidate layout costs: the simulator's answer, and what each layer weighs before there is
// a layout. Helper of auto_layout.cpp; means of steps also serve commands that simulate many.
//
// Pure.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "scheduler/cost/sample_costs.hpp"
#include "scheduler/iteration/redistribution.hpp"
#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/layout/layout_shapes.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::scheduler {

/// Adds a step of the same layout to `sum`: times and bubbles are summed, the largest memory stays.
void add_step(const SimulatedStep& step, PredictedStep& sum);

/// Makes means of the times and bubbles of `count` added steps. REQUIRES: count > 0.
void divide_steps(PredictedStep& sum, double count);

/// Scores layouts of one request. Holds the batches that all candidates are compared on, and
/// remembers what their samples cost at each choice of degrees. Single owner.
class LayoutScorer {
 public:
  /// `request` outlives the scorer. REQUIRES: samples, a batch of at least one.
  explicit LayoutScorer(const AutoLayoutRequest& request);

  /// What layers weigh when the batch is dealt to `pipelines`, with these degrees per module.
  /// Remembered. Errors: as `predicted_costs`.
  Result<LayerWeights> weights(std::int32_t pipelines,
                               const std::vector<Parallelism>& parallelisms);

  /// Simulates a step of every batch; `batches` limits how many (0: all). Phases go over windows of
  /// as many microbatches as memory, or the request's bound, has room for (`memory_bounds`); or of
  /// `window`, whatever that takes (0: of all at once). What encoders offload goes and comes as in
  /// the step of training.
  /// Errors: as `predict_step`; infeasible also where a window has no room for a microbatch, or
  /// would have to be wider.
  Result<PredictedStep> score(const ParallelPlan& plan, std::size_t batches = 0,
                              std::optional<std::int32_t> window = std::nullopt);

  /// Actions that one simulated step of such a layout has, about; more where each takes longer.
  double actions(std::int32_t pipelines, std::int32_t groups) const;

 private:
  /// Per module the degrees that it has somewhere in a layout.
  using Degrees = std::vector<std::vector<Parallelism>>;
  using BatchCosts = std::vector<SampleCosts>;  ///< Per batch.

  LayerWeights weigh(const SampleCosts& costs, const std::vector<Parallelism>& parallelisms,
                     std::int32_t pipelines) const;
  /// Adds the rows that layers get, of these microbatches of the first batch.
  void weigh_rows(const MicrobatchList& microbatches, const std::vector<Parallelism>& parallelisms,
                  LayerWeights& weights) const;
  /// Remembered. Errors: as `predicted_costs`.
  Result<const BatchCosts*> costs_at(const ParallelPlan& plan);
  /// The finest plan with stages of these degrees, whose devices nobody reads.
  ParallelPlan finest_at(const std::vector<Parallelism>& parallelisms) const;
  /// Per stage, of phases: microbatches that may be in flight; empty: no bound.
  Result<std::vector<std::int32_t>> in_flight_bounds(
      const ParallelPlan& plan, const SimulationCosts& costs, std::span<const SampleShape> samples,
      const std::shared_ptr<const RowFlow>& flow,
      const std::vector<MicrobatchList>& microbatches) const;

  const AutoLayoutRequest& request_;
  Result<ParallelPlan> finest_;  ///< Every layer a stage.
  std::vector<std::vector<SampleShape>> batches_;
  std::vector<std::shared_ptr<const RowFlow>> flows_;  ///< Per batch; the same on each layout.
  std::unique_ptr<SampleSums> sums_;                   ///< Over each drawn sample once.
  std::vector<std::vector<std::int32_t>> drawn_of_;  ///< Per batch and position: its sample there.
  std::map<Degrees, BatchCosts> known_;
  std::map<std::pair<std::int32_t, std::vector<Parallelism>>, LayerWeights> weighed_;
};

}  // namespace troupe::scheduler
