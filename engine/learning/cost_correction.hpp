// What measured times teach about costs, for everything that is planned from them: what parts take
// and what samples weigh (`balancer.adaptive_correction`).
//
// Two tables. Samples are filed under a module's run in a stage and the rows that they have there;
// their weights and all parts follow these. Parts are filed under a stage and their rows: what that
// very size was measured to take beyond what its samples explain.
//
// Pure but for timing itself. Single owner, not thread-safe. Used by microbatching alone.

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "balancer/corrections/adaptive_correction.hpp"
#include "balancer/corrections/sample_correction.hpp"
#include "balancer/loads/workload.hpp"
#include "runtime/observe/trace_event.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/learned_costs.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "scheduler/cost/sample_costs.hpp"
#include "scheduler/iteration/iteration_graph.hpp"

namespace troupe::engine {

/// What each unit of a batch (`SampleUnits::shapes`) brings to each stage. Copies what it needs.
class StageShares {
 public:
  StageShares(const ParallelPlan& plan, const scheduler::SampleCosts& costs,
              std::span<const SampleShape> samples);

  struct Share {
    balancer::WorkShape shape;
    double predicted_ms = 0;  ///< Forward and backward, without constants of a launch.
    bool llm = false;         ///< Whether the run is one of the llm.
  };
  /// Of one sample, one per run of the stage.
  std::span<const Share> of(StageId stage, std::int32_t sample) const;
  /// What a part is filed under: the stage and the rows of its samples in the stage's modules.
  balancer::WorkShape part_shape(StageId stage, std::span<const std::int32_t> part) const;

 private:
  std::vector<std::size_t> runs_;           // Per stage.
  std::vector<std::vector<Share>> shares_;  // Per stage: sample by sample, run by run.
};

class CostCorrection {
 public:
  /// `plan` outlives this object.
  explicit CostCorrection(const ParallelPlan& plan) : plan_(plan) {}

  /// What tasks take as measured: by their samples, then by the size of their part.
  /// This object outlives the function and changes it by learning.
  scheduler::TaskCost corrected(scheduler::TaskCost task_ms,
                                std::shared_ptr<const StageShares> shares) const;

  /// What a sample of this pipeline weighs by the factors of its shape in each of the pipeline's
  /// stages; the same bits where none deviates.
  balancer::Workload corrected(balancer::Workload weight, PipelineId pipeline,
                               const StageShares& shares, std::int32_t sample) const;

  /// How many times as long as by the profile a replica takes for the first so many samples: its
  /// busiest device, by the factors of their shapes in the stages there; exactly 1 where none
  /// deviates. Cost: O(samples x stages of the replica x log(shapes)).
  double slowdown(ReplicaId replica, const StageShares& shares, std::size_t samples) const;

  /// Learns from a finished step of so long: `task_ms` is what the profile said of its tasks.
  /// Ignored once watching costs more than it brings.
  void learn(const IterationPlan& iteration, const scheduler::TaskCost& task_ms,
             const StageShares& shares, std::span<const observe::TraceEvent> events,
             double step_ms);

  /// Adds what it knows after a step to `learned`, whose stages are the plan's.
  void save(LearnedCosts& learned) const;
  /// Goes on from there. REQUIRES: stages are the plan's (learned_state.hpp).
  void restore(const LearnedCosts& learned);

  bool tracking() const { return parts_.tracking(); }
  /// Shapes of samples and sizes of parts whose predictions are corrected at present.
  std::size_t corrected_shapes() const {
    return parts_.corrected_shapes() + samples_.corrected_shapes();
  }

 private:
  double factor_of(StageId stage, std::span<const std::int32_t> part,
                   const StageShares& shares) const;

  const ParallelPlan& plan_;
  balancer::AdaptiveCorrection parts_;
  balancer::SampleCorrection samples_;
};

}  // namespace troupe::engine
