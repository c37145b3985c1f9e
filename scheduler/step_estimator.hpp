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

#include "scheduler/module_pipeline.hpp"

namespace troupe::scheduler {

class StepEstimator {
 public:
  struct Estimate {
    double step_ms = 0;   ///< What `make_schedule` says.
    double bound_ms = 0;  ///< What `schedule_bound_ms` says.
  };

  /// For `microbatches` >= 1 without deferral. Nothing where the order of a schedule depends on
  /// times: in schedules that search, on devices with several stages, and of unknown names.
  static std::optional<StepEstimator> create(const ModulePipeline& shape,
                                             const std::string& schedule,
                                             std::int32_t microbatches);

  /// Loads are >= 0 and finite. REQUIRES: as many as `create` was told.
  /// Cost: O(stages x microbatches), some nanoseconds each.
  Estimate operator()(std::span<const ModuleWork> microbatches) const;

 private:
  /// A task at its place in an order that respects all dependencies.
  struct Step {
    std::int32_t microbatch = 0;
    bool encoder = false;
    double share = 0;             ///< Milliseconds per millisecond of the microbatch's load.
    std::int32_t first_need = 0;  ///< Into `needs_`; they end where the next step's begin.
  };
  struct Stage {
    bool encoder = false;
    double forward = 0;   ///< Shares, as above.
    double backward = 0;  ///< Without weight gradients that are tasks of their own.
    double weight = 0;    ///< These.
  };

  StepEstimator() = default;
  double bound_ms(std::span<const ModuleWork> microbatches) const;

  std::vector<Step> steps_;
  std::vector<std::int32_t> needs_;  ///< Places of steps.
  std::vector<Stage> stages_;
  bool forwards_first_ = false;  ///< GPipe.
};

}  // namespace troupe::scheduler
