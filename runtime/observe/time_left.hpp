// How long a job will still take, from how its recent steps went.
//
// Pure: no clock; steps are told. Single owner.

#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "runtime/vocabulary/units.hpp"

namespace troupe::observe {

/// How far a job goes: so many steps, or where these follow from its tokens, so many tokens.
struct TrainingGoal {
  std::int64_t steps = 0;            ///< 0: as many as the tokens take.
  TokenCount tokens = 0;             ///< Of the llm, media rows included.
  std::int64_t steps_per_epoch = 0;  ///< Of the data; 0: lines say no epoch.
  TokenCount tokens_before = 0;      ///< Trained before this process went on with the run.
};

class TimeLeft {
 public:
  explicit TimeLeft(TrainingGoal goal) : goal_(goal) {}

  /// A step that has ended. REQUIRES: steps come in order.
  void add(std::int64_t step, TokenCount tokens, double step_ms);

  /// Mean of the recent steps without the slowest and the fastest tenth of them (from three steps
  /// on at least one each): the first step warms up, and a step that waited for a disk or a lost
  /// node says nothing about the next ones. 0 before the first step.
  double step_ms() const;

  /// Steps in all; where tokens decide, about as many as recent steps make it. 0: unknown.
  std::int64_t total_steps() const;

  /// None: the job's length is not known yet.
  std::optional<double> seconds() const;

 private:
  struct Recent {
    double step_ms = 0;
    TokenCount tokens = 0;
  };

  TrainingGoal goal_;
  std::int64_t step_ = 0;
  TokenCount tokens_ = 0;  // In this process.
  std::deque<Recent> recent_;
};

}  // namespace troupe::observe
