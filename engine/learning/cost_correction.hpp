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
#include <ranges>
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

/// What each unit of a batch (`SampleUnits::shapes`) brings to each stage: kept once for stages
/// that run the same layers on equal grids, and samples that are alike. Copies what it needs.
class StageShares {
 public:
  /// `costs`: of these samples.
  StageShares(const ParallelPlan& plan, const scheduler::SampleCosts& costs,
              std::span<const SampleShape> samples);

  struct Share {
    balancer::WorkShape shape;
    double predicted_ms = 0;  ///< Forward and backward, without constants of a launch.
    bool llm = false;         ///< Whether the run is one of the llm.
  };
  /// Of one sample, one per run of the stage. This outlives them.
  auto of(StageId stage, std::int32_t sample) const {
    const Kind& kind = kinds_[kind_of_[stage.index()]];
    const std::size_t first =
        costs_.shape_of(static_cast<std::size_t>(sample)) * kind.modules.size();
    return std::views::iota(std::size_t{0}, kind.modules.size()) |
           std::views::transform([this, &kind, stage, first](std::size_t run) {
             const Brought& brought = kind.brought[first + run];
             const std::size_t module = kind.modules[run].index();
             return Share{
                 {static_cast<std::int32_t>(stage.index() * is_llm_.size() + module), brought.rows},
                 brought.ms,
                 is_llm_[module]};
           });
  }
  /// What a part is filed under: the stage and the rows of its samples in the stage's modules.
  balancer::WorkShape part_shape(StageId stage, std::span<const std::int32_t> part) const;

 private:
  struct Brought {
    TokenCount rows = 0;
    double ms = 0;
  };
  struct Kind {
    std::vector<ModuleId> modules;  ///< Per run.
    std::vector<Brought> brought;   ///< Shape by shape of samples, run by run.
  };
  scheduler::SampleCosts costs_;
  std::vector<bool> is_llm_;          // Per module.
  std::vector<Kind> kinds_;           // Of stages.
  std::vector<std::size_t> kind_of_;  // Per stage.
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

  /// How many times as long as by the profile a replica takes for these samples: its busiest
  /// device, by the factors of their shapes in the stages there; exactly 1 where none deviates.
  /// Cost: O(samples x stages of the replica x log(shapes)).
  double slowdown(ReplicaId replica, const StageShares& shares,
                  std::span<const std::int32_t> samples) const;

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
