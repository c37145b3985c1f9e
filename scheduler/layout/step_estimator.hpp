// The step of a pipeline under a named schedule from the loads of its microbatches alone: what a
// search over thousands of sizes asks. Builds graph and order once; each answer is one longest
// path.
//
// Pure; const functions may run in several threads at a time.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "scheduler/iteration/schedules.hpp"
#include "scheduler/layout/module_pipeline.hpp"

namespace troupe::scheduler {

class StepEstimator {
 public:
  /// What a stage's tasks take besides their share of the load, where there is any.
  struct Constants {
    double forward_ms = 0;
    double input_grad_ms = 0;
    double weight_grad_ms = 0;
  };

  /// For `times.microbatches` >= 1 without deferral. `times`: per stage, the same for every
  /// microbatch, milliseconds per millisecond of the microbatch's load on the stage's side; links
  /// take no time. `constants`: per stage; empty: none. `max_in_flight`: as `make_schedule`'s.
  /// Nothing where the order of a schedule depends on times: in schedules that search, on devices
  /// with several stages, of unknown names, or where the bounds leave no order.
  ///
  /// REQUIRES: `check_times(times)` is fine; stages in topological order.
  static std::optional<StepEstimator> create(const PipelineTimes& times, const Schedule& schedule,
                                             std::span<const Constants> constants = {},
                                             const std::vector<std::int32_t>& max_in_flight = {});

  /// The same for stages that share their modules evenly. Nothing where the order of a schedule
  /// depends on times: in schedules that search, on devices with several stages, and of unknown
  /// names.
  static std::optional<StepEstimator> create(const ModulePipeline& shape, const Schedule& schedule,
                                             std::int32_t microbatches);

  /// The step in milliseconds that `make_schedule` says. Loads are >= 0 and finite. REQUIRES: as
  /// many as `create` was told. Cost: O(stages x microbatches), some nanoseconds each.
  double operator()(std::span<const ModuleWork> microbatches) const;

 private:
  /// Milliseconds from the load of a microbatch; without rows there is nothing to do.
  struct Rate {
    double per_ms = 0;
    double constant_ms = 0;

    double at(double load) const { return load > 0 ? per_ms * load + constant_ms : 0; }
  };
  /// A task at its place in an order that respects all dependencies.
  struct Step {
    std::int32_t microbatch = 0;
    bool encoder = false;
    Rate rate;
    std::int32_t first_need = 0;  ///< Into `needs_`; they end where the next step's begin.
  };
  struct Stage {
    bool encoder = false;
    Rate forward;
    Rate backward;  ///< Without weight gradients that are tasks of their own.
    Rate weight;    ///< These.
  };

  StepEstimator() = default;
  void add_steps(const TaskGraph& graph, const Timeline& timeline);

  std::vector<Step> steps_;
  std::vector<std::int32_t> needs_;  ///< Places of steps.
  std::vector<Stage> stages_;
};

}  // namespace troupe::scheduler
