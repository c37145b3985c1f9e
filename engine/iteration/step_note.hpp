// What nodes keep of each step for a head that goes on where this one is lost. Values that travel.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/iteration/reports.hpp"
#include "runtime/vocabulary/job_progress.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

/// What a job is after a step, and what its record says of the step. Nodes keep it for a head that
/// goes on where this one is lost.
struct StepNote {
  std::int64_t step = 0;
  TokenCount tokens = 0;  ///< LLM tokens of all steps so far.
  SkipCounts skipped;
  std::vector<BadSampleNote> bad;  ///< Of batches since the last step that devices ran.
  std::vector<DealNote> deals;     ///< That the next batch looks back at.
  double loss = 0;
  std::map<std::string, double> auxiliary_losses = {};
  double grad_norm = 0;
  TokenCount step_tokens = 0;  ///< Of this step alone.
  TokenCount trained_tokens = 0;
  std::vector<std::string> ids;  ///< Samples in training order; also of a step that was discarded.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, StepNote& x) {
    return f(x.step, x.tokens, x.skipped, x.bad, x.deals, x.loss, x.auxiliary_losses, x.grad_norm,
             x.step_tokens, x.trained_tokens, x.ids);
  }
};

/// The word on a step, as nodes hear it.
struct StepVerdict {
  Decision decision;
  StepNote note;

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, StepVerdict& x) {
    return f(x.decision, x.note);
  }
};

/// The job after that step. REQUIRES: `progress` is what it was after the last step before it that
/// devices ran.
void apply_note(JobProgress& progress, const StepNote& note);

}  // namespace troupe::engine
