#include "runtime/observe/step_reporter.hpp"

namespace troupe::observe {

void StepReporter::report(const StepMetrics& metrics) {
  logger_.log(metrics.skipped.empty() ? LogLevel::info : LogLevel::warning,
              step_line(metrics, total_steps_));
  constexpr double kWeight = 0.1;
  mean_step_ms_ = mean_step_ms_ == 0 ? metrics.step_ms
                                     : mean_step_ms_ + kWeight * (metrics.step_ms - mean_step_ms_);
  if (total_steps_ > 0 && console_.options().terminal)
    console_.status(progress_bar(metrics.step, total_steps_, mean_step_ms_, console_.width() - 1));
}

}  // namespace troupe::observe
