// Which of several layouts a job goes on with: by the samples that it is predicted to lose until
// nodes change again.
//
// Pure; thread-safe; the same answer on every node.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/vocabulary/parallel_plan.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"

namespace troupe::scheduler {

/// Microbatches that a layout trains in a millisecond, where layers take what `templates` say
/// (`layer_ms`). Pipelines add up, each by its stages as its template would (sum + (Nb - 1) x the
/// slowest, over Nb); where groups have replicas of their own, the slower group counts, by the
/// slowest stages of its replicas. Groups that share devices take turns as in schedules of phases:
/// their replicas add up as pipelines do, and a device waits for each group that it has stages of.
/// 0: the templates know nothing of this model's layers.
double microbatches_per_ms(const ParallelPlan& plan, const TemplateSet& templates);

/// What a layout would cost and bring.
struct LayoutOutlook {
  double samples_per_ms = 0;  ///< >= 0.
  double copy_ms = 0;         ///< In which nothing is trained; >= 0.
};

/// Samples that the fastest of them would train in `horizon_ms` (>= 0) if nothing moved, and this
/// one does not. A copy that takes longer loses all of them.
double lost_samples(const LayoutOutlook& outlook, double fastest_samples_per_ms, double horizon_ms);

/// The one that loses least; the first of equals. REQUIRES: there is one.
std::size_t choose_layout(std::span<const LayoutOutlook> outlooks, double horizon_ms);

/// Time until nodes change again, where they changed so often in `elapsed_ms`: as if they had
/// changed once more, and an hour before the job began. (The mean of an exponential's rate under
/// that prior; a young job expects an hour of quiet.)
double expected_quiet_ms(std::int64_t changes, double elapsed_ms);

}  // namespace troupe::scheduler
