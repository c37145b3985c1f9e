#include "runtime/observe/step_reporter.hpp"

#include <spdlog/fmt/fmt.h>

namespace troupe::observe {

void StepReporter::report(const StepMetrics& metrics) {
  left_.add(metrics.step, metrics.tokens, metrics.step_ms);
  StepLineOptions line{goal_.steps, goal_.steps_per_epoch};
  line.left_s = left_.seconds();
  const auto width = static_cast<std::size_t>(console_.width());
  if (console_.options().terminal && width > logger_.prefix_columns())
    line.columns = width - logger_.prefix_columns();
  logger_.log(metrics.skipped.empty() ? LogLevel::info : LogLevel::warning,
              step_line(metrics, line));
  if (const auto total = left_.total_steps(); total > 0 && console_.options().terminal)
    console_.status(progress_bar(metrics.step, total, left_.step_ms(), console_.width() - 1));
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
