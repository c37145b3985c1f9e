#include "engine/iteration/skipped_steps.hpp"

#include <string>

namespace troupe::engine {

namespace {

Error too_many_nonfinite(std::int32_t count, std::int64_t step, const StepOutcome& outcome) {
  std::string samples;
  for (std::size_t i = 0; i < outcome.nonfinite_samples.size() && i < 5; ++i)
    samples += (i ? ", " : "; samples ") + outcome.nonfinite_samples[i];
  return {Errc::internal,
          std::to_string(count) + " steps in a row were skipped, the last because " +
              outcome.decision.reason + samples,
          "step " + std::to_string(step),
          "lower optimizer.lr, or lengthen optimizer.warmup_steps; "
          "train.max_nonfinite_in_a_row sets the limit"};
}

}  // namespace

Status SkippedSteps::add(std::int64_t step, const StepOutcome& outcome, TokenCount trained_tokens,
                         std::int64_t positions) {
  if (!outcome.decision.commit) ++counts_.count;
  if (trained_tokens == 0) {
    counts_.untrained_positions += positions;
    if (counts_.untrained_positions < records_) return Done{};
    return Error{Errc::bad_data,
                 "none of the last " + std::to_string(counts_.untrained_positions) +
                     " samples, a whole epoch, could be trained",
                 "step " + std::to_string(step),
                 "bad_samples.jsonl says why each was dropped; a lower data.max_bad_fraction stops "
                 "earlier"};
  }
  counts_.untrained_positions = 0;
  counts_.nonfinite_in_a_row = outcome.decision.commit ? 0 : counts_.nonfinite_in_a_row + 1;
  if (counts_.nonfinite_in_a_row >= max_in_a_row_)
    return too_many_nonfinite(counts_.nonfinite_in_a_row, step, outcome);
  return Done{};
}

}  // namespace troupe::engine
