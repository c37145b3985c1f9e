// Proves iteration plans sound before devices execute them.
//
// Why: a plan with a fault is a job that hangs or a step that is silently wrong; the checker
// (scheduler/check/check_plan.hpp) derives what must happen without the planner. Not thread-safe.

#pragma once

#include <cstdint>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

class PlanGuard {
 public:
  /// A check may take this share of a step; where it takes more, the first plan is checked and
  /// every hundredth.
  static constexpr double kShareMax = 0.02;
  static constexpr std::int64_t kCheckedEvery = 100;

  /// `plan` outlives the guard.
  explicit PlanGuard(const ParallelPlan& plan) : plan_(plan) {}

  /// Checks the next iteration, if it is its turn. `step_ms`: what its step is predicted to take; 0
  /// where nobody knows: then it is checked.
  /// Errors: internal: the plan is unsound; names the step, the first fault and how many there are.
  Status pass(const IterationPlan& iteration, double step_ms);

  /// Processor time that the check of the last iteration took; 0: it was not its turn. It was wall
  /// time before (0.15 ms a plan of the demo then, 0.12 ms now), which a busy machine stretched so
  /// that one check of 23 ms left out the next 40 plans.
  double check_ms() const { return check_ms_; }

 private:
  bool is_due(double step_ms) const;

  const ParallelPlan& plan_;
  std::int64_t seen_ = 0;
  double check_ms_ = 0;
  double last_ms_ = 0;  ///< Of the last iteration that was checked.
};

}  // namespace troupe::engine
