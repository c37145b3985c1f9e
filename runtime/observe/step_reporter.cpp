#include "runtime/observe/step_reporter.hpp"

#include <spdlog/fmt/fmt.h>

namespace troupe::observe {

void StepReporter::report(const StepMetrics& metrics) {
  logger_.log(metrics.skipped.empty() ? LogLevel::info : LogLevel::warning,
              step_line(metrics, total_steps_));
  constexpr double kWeight = 0.1;
  mean_step_ms_ = mean_step_ms_ == 0 ? metrics.step_ms
                                     : mean_step_ms_ + kWeight * (metrics.step_ms - mean_step_ms_);
  if (total_steps_ > 0 && console_.options().terminal)
    console_.status(progress_bar(metrics.step, total_steps_, mean_step_ms_, console_.width() - 1));
  last_ = metrics;
}

void StepReporter::finish() {
  console_.status("");
  if (last_.skipped_steps > 0)
    logger_.warning(fmt::format("{} of {} steps left the parameters alone; metrics.jsonl says why",
                                last_.skipped_steps, last_.step));
  if (last_.bad_samples > 0)
    logger_.warning(
        fmt::format("{} bad samples were dropped; bad_samples.jsonl says why", last_.bad_samples));
  last_ = {};
}

}  // namespace troupe::observe
