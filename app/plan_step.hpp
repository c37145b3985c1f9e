// What `troupe plan` says of a job: a layout, the one step that stands for it in headline, table
// and drawing, and what would do better.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/planning.hpp"

namespace troupe::app {

/// A layout and a step of it.
struct PlannedStep {
  /// Its prediction is that of `batch` alone, but for memory: the largest of all batches.
  scheduler::AutoLayout layout;
  PredictedBatch batch;  ///< With its timeline.
  double mean_ms = 0;    ///< Over the batches it was chosen from; what layouts are compared by.
  double least_ms = 0;
  double most_ms = 0;
};

/// Finds the layout (`make_layout`), and of `engine::kJudgedBatches` batches that training would
/// make one after the other the one whose step is nearest to their mean; ties: the first.
/// Errors: as `make_layout`.
Result<PlannedStep> plan_step(const Planning& planning);

/// Something that would serve the job better.
struct Suggestion {
  std::string key;    ///< Of the job file; or `--cluster`.
  std::string value;  ///< As it is written there.
  double step_ms = 0;
  std::string text;  ///< One sentence with both step times.
};

/// Tries other numbers of microbatches (twice, half ... as long as that is faster), the other
/// built-in schedules, those of phases also with encoders on the llm's devices, and of devices that
/// are not here fewer. Each is planned in full, so that its
/// step time is what `plan` says once the suggestion is taken. What cannot be planned is left out.
///
/// Microbatches and a schedule are suggested where they save `kWorthSaving` of a step, of the mean
/// one as of the one that is shown; so many devices as are the first whose doubling is not worth
/// `kWorthDoubling`, where those of the plan take `kDeviceTimeWasted` times their device time, or
/// more.
std::vector<Suggestion> suggestions(const Planning& planning, const PlannedStep& planned);

inline constexpr double kWorthSaving = 0.05;
inline constexpr double kWorthDoubling = 1.5;  ///< Times as fast on twice the devices.
inline constexpr double kDeviceTimeWasted = 1.5;

}  // namespace troupe::app
