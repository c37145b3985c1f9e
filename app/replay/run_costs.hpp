// What changes of its nodes cost a job that ran, for a replay of others: medians of the phases that
// its events.jsonl tells, and what its metrics.jsonl adds to them.
//
// Parsing is pure; thread-safe.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/vocabulary/result.hpp"
#include "scheduler/recovery/replay_failures.hpp"

namespace troupe::app {

struct RunCosts {
  std::int64_t losses = 0;  ///< Events `lost`.
  std::int64_t joins = 0;   ///< Events `joined`.
  /// None: the run has no such event. Copies are whole: as long as they took there.
  std::optional<scheduler::ChangeCosts> loss, join;
  /// To a layout during which state came; none: no joining node took any over step by step.
  std::optional<double> turnover_ms;
  /// What undisturbed steps took, over what the profile said of them; none: it said nothing.
  std::optional<double> pace;
};

/// `events` and `metrics`: texts of those files; `name` stands for the first one in errors. What a
/// first step took beyond a usual one is told by later steps of its generation, a turnover by the
/// steps of a warm-up; 0 and none where there are none. A last line that is cut does not count.
///
/// Errors: bad_data: a line that is no JSON object (`where` = `name:line`); no loss and no join.
Result<RunCosts> parse_run_costs(const std::string& events, const std::string& metrics,
                                 const std::string& name);

/// Of a run folder. Errors: as above; not_found: it has no events.jsonl.
Result<RunCosts> read_run_costs(const std::filesystem::path& run);

}  // namespace troupe::app
