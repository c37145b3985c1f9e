// Tells people how training goes: a line per step, a progress bar where there is a terminal.
//
// Owned by one thread. Does not measure anything itself.

#pragma once

#include "runtime/observe/console.hpp"
#include "runtime/observe/logger.hpp"
#include "runtime/observe/step_metrics.hpp"
#include "runtime/observe/time_left.hpp"

namespace troupe::observe {

class StepReporter {
 public:
  /// `console` must outlive this. A goal of nothing: there is no bar.
  StepReporter(Console& console, Logger logger, TrainingGoal goal)
      : console_(console), logger_(std::move(logger)), goal_(goal), left_(goal) {}

  /// Logs the step (as a warning where it was skipped) and moves the bar. On a terminal the line is
  /// as long as one line there may be.
  void report(const StepMetrics& metrics);

  /// Removes the bar; nothing is lost, every step has its line. Says how many steps and samples
  /// were left out, if any were.
  void finish();

 private:
  Console& console_;
  Logger logger_;
  TrainingGoal goal_;
  TimeLeft left_;
  StepMetrics last_;
};

}  // namespace troupe::observe
