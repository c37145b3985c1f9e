// Steps that leave parameters alone: how many, and when a job must not go on like that. Training
// and the reference runs count alike. Single owner, not thread-safe.

#pragma once

#include <cstdint>

#include "engine/iteration/prepared_votes.hpp"
#include "runtime/vocabulary/job_progress.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

class SkippedSteps {
 public:
  /// REQUIRES: max_in_a_row >= 1, records >= 1.
  /// `counts`: of the steps before, where a job goes on.
  SkippedSteps(std::int32_t max_in_a_row, std::int64_t records, SkipCounts counts = {})
      : max_in_a_row_(max_in_a_row), records_(records), counts_(counts) {}

  /// Counts a finished step that consumed `positions` of the order. A step without trained tokens
  /// says nothing about the numbers, so it neither adds to a row of steps that were not finite nor
  /// ends it.
  ///
  /// Errors:
  /// - internal: `max_in_a_row` steps in a row were not finite; names the last one's samples.
  /// - bad_data: no sample of a whole epoch could be trained; the job might never end.
  Status add(std::int64_t step, const StepOutcome& outcome, TokenCount trained_tokens,
             std::int64_t positions);

  /// As if the steps up to some later one had been added.
  void go_on_from(const SkipCounts& counts) { counts_ = counts; }

  std::int64_t count() const { return counts_.count; }
  const SkipCounts& counts() const { return counts_; }

 private:
  std::int32_t max_in_a_row_;
  std::int64_t records_;
  SkipCounts counts_;
};

}  // namespace troupe::engine
