// What `troupe replay` prints.

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/recovery/replay_failures.hpp"

namespace troupe::app {

/// One way to recover, played through.
struct PlayedRecovery {
  scheduler::RecoveryMode mode;
  scheduler::ReplayResult result;

  const char* name() const { return mode == scheduler::RecoveryMode::live ? "live" : "checkpoint"; }
  std::int64_t count(scheduler::EventOutcome outcome) const {
    return std::count_if(result.events.begin(), result.events.end(),
                         [&](const auto& event) { return event.outcome == outcome; });
  }
};

/// What was played, beside the results.
struct ReplayFacts {
  std::string job;                         ///< Its name.
  std::string node;                        ///< Its devices: `1 x cpu`.
  std::int64_t nodes = 0, peak_nodes = 0;  ///< At first, at most.
  std::string costs_words;                 ///< Where layer costs come from; a line.
  std::string sums;    ///< Of gradients: how they count; empty: as the job says.
  std::string device;  ///< As shown: `A40-48G`, `cpu`.
  std::string costs;   ///< `computed`, `measured`.
  scheduler::RecoveryCosts changes;
  std::string changes_from;  ///< The run they were taken from; empty: none.
  double start_ms = 0;       ///< Of a node, before it joins.
  double pace = 1;           ///< Of steps, beside the profile.
};

/// A table for people. REQUIRES: `all` not empty.
void print_replay(const ReplayFacts& facts, const std::vector<PlayedRecovery>& all);

/// One JSON object. Phases of an event have the keys that events.jsonl of a run gives them.
void print_replay_json(const ReplayFacts& facts, const std::vector<PlayedRecovery>& all);

}  // namespace troupe::app
