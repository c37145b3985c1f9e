#include "runtime/observe/step_reporter.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>

namespace troupe::observe {

std::int64_t StepReporter::total_steps(std::int64_t step) const {
  if (goal_.steps > 0 || goal_.tokens == 0 || tokens_ == 0) return goal_.steps;
  const double share = static_cast<double>(goal_.tokens) / static_cast<double>(tokens_);
  return std::max(step, static_cast<std::int64_t>(std::ceil(share * static_cast<double>(step))));
}

void StepReporter::report(const StepMetrics& metrics) {
  StepLineOptions line{goal_.steps, goal_.steps_per_epoch};
  const auto width = static_cast<std::size_t>(console_.width());
  if (console_.options().terminal && width > logger_.prefix_columns())
    line.columns = width - logger_.prefix_columns();
  logger_.log(metrics.skipped.empty() ? LogLevel::info : LogLevel::warning,
              step_line(metrics, line));
  tokens_ += metrics.tokens;
  constexpr double kWeight = 0.1;
  mean_step_ms_ = mean_step_ms_ == 0 ? metrics.step_ms
                                     : mean_step_ms_ + kWeight * (metrics.step_ms - mean_step_ms_);
  if (const auto total = total_steps(metrics.step); total > 0 && console_.options().terminal)
    console_.status(progress_bar(metrics.step, total, mean_step_ms_, console_.width() - 1));
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
