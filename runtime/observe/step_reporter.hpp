// Tells people how training goes: a line per step, a progress bar where there is a terminal.
//
// Owned by one thread. Does not measure anything itself.

#pragma once

#include <cstdint>

#include "runtime/observe/console.hpp"
#include "runtime/observe/logger.hpp"
#include "runtime/observe/step_metrics.hpp"

namespace troupe::observe {

/// How far a job goes: so many steps, or where these follow from its tokens, so many tokens.
struct TrainingGoal {
  std::int64_t steps = 0;            ///< 0: as many as the tokens take.
  TokenCount tokens = 0;             ///< Of the llm, media rows included.
  std::int64_t steps_per_epoch = 0;  ///< Of the data; 0: lines say no epoch.
};

class StepReporter {
 public:
  /// `console` must outlive this. A goal of nothing: there is no bar.
  StepReporter(Console& console, Logger logger, TrainingGoal goal)
      : console_(console), logger_(std::move(logger)), goal_(goal) {}

  /// Logs the step (as a warning where it was skipped) and moves the bar. On a terminal the line is
  /// as long as one line there may be.
  void report(const StepMetrics& metrics);

  /// Removes the bar; nothing is lost, every step has its line. Says how many steps and samples
  /// were left out, if any were.
  void finish();

 private:
  /// Steps in all; about, where tokens decide; 0 while that is unknown.
  std::int64_t total_steps(std::int64_t step) const;

  Console& console_;
  Logger logger_;
  TrainingGoal goal_;
  TokenCount tokens_ = 0;    // So far.
  double mean_step_ms_ = 0;  // Recent steps weigh more.
  StepMetrics last_;
};

}  // namespace troupe::observe
