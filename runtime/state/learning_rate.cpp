#include "runtime/state/learning_rate.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>

namespace troupe::state {

LearningRateSchedule make_schedule(double lr, double min_lr, std::int64_t warmup_steps,
                                   std::int64_t total_steps) {
  const double ratio = lr > 0 ? std::clamp(min_lr / lr, 0.0, 1.0) : 1.0;
  return {ratio, std::max<std::int64_t>(warmup_steps, 0), std::max<std::int64_t>(total_steps, 1)};
}

double learning_rate_factor(const LearningRateSchedule& schedule, std::int64_t step) {
  assert(step >= 1);
  if (step <= schedule.warmup_steps)
    return static_cast<double>(step) / static_cast<double>(schedule.warmup_steps + 1);
  const std::int64_t first = schedule.warmup_steps + 1;
  const std::int64_t descent = schedule.total_steps - first;
  if (descent <= 0 || step == first) return 1;
  if (step >= schedule.total_steps) return schedule.min_ratio;
  const double done = static_cast<double>(step - first) / static_cast<double>(descent);
  const double cosine = (1 + std::cos(std::numbers::pi * done)) / 2;
  return schedule.min_ratio + (1 - schedule.min_ratio) * cosine;
}

}  // namespace troupe::state
