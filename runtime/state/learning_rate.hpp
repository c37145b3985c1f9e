// The learning rate as a pure function of the step, so that resume, failure and a changed layout
// cannot shift it. No state, no clock.

#pragma once

#include <cstdint>

namespace troupe::state {

/// Linear warm-up, then a cosine down to a floor.
struct LearningRateSchedule {
  double min_ratio = 0;           ///< Floor as a share of the peak; [0, 1].
  std::int64_t warmup_steps = 0;  ///< >= 0.
  std::int64_t total_steps = 1;   ///< Steps of the whole job; >= 1.

  friend bool operator==(const LearningRateSchedule&, const LearningRateSchedule&) = default;
};

/// The schedule of a job with peak `lr` and floor `min_lr`. A floor above the peak, or a peak of
/// zero, gives a constant rate after the warm-up.
LearningRateSchedule make_schedule(double lr, double min_lr, std::int64_t warmup_steps,
                                   std::int64_t total_steps);

/// Share of the peak rate at `step` (from 1), in [0, 1]. A module with its own peak multiplies
/// that.
///
///   step <= warmup:  step / (warmup + 1)
///   else:            r + (1 - r) / 2 * (1 + cos(pi * (step - warmup - 1) / (total - warmup - 1)))
///
/// So step warmup + 1 has the whole peak, the last step exactly the floor, and no step within the
/// warm-up has a rate of zero. A job that ends at or before step warmup + 1 never descends; steps
/// beyond the total stay at the floor. REQUIRES: step >= 1.
double learning_rate_factor(const LearningRateSchedule& schedule, std::int64_t step);

}  // namespace troupe::state
