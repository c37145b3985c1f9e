// Tells people how training goes: a line per step, a progress bar where there is a terminal.
//
// Owned by one thread. Does not measure anything itself.

#pragma once

#include <cstdint>

#include "runtime/observe/console.hpp"
#include "runtime/observe/logger.hpp"
#include "runtime/observe/step_metrics.hpp"

namespace troupe::observe {

class StepReporter {
 public:
  /// `console` must outlive this. `total_steps` 0: unknown, then there is no bar.
  StepReporter(Console& console, Logger logger, std::int64_t total_steps)
      : console_(console), logger_(std::move(logger)), total_steps_(total_steps) {}

  /// Logs the step (as a warning where it was skipped) and moves the bar.
  void report(const StepMetrics& metrics);

  /// Removes the bar; nothing is lost, every step has its line. Says how many steps and samples
  /// were left out, if any were.
  void finish();

 private:
  Console& console_;
  Logger logger_;
  std::int64_t total_steps_;
  double mean_step_ms_ = 0;  // Recent steps weigh more.
  StepMetrics last_;
};

}  // namespace troupe::observe
