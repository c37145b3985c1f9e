// How long stages take at present, beside what their profile says: machines are faster or slower
// than when they were profiled, and share their cores with decoding.
//
// Pure apart from its own state. Single owner, not thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/observe/trace_event.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

/// Milliseconds of each stage in a step: forwards, backwards and the update, without waiting.
/// REQUIRES: `events` name no other stages.
std::vector<double> measured_stage_ms(std::size_t stages,
                                      std::span<const observe::TraceEvent> events);

class StageSpeeds {
 public:
  /// A finished step: per stage what its profile said, and what it took. Newer steps weigh more.
  /// The first one warms up: it counts only until the second is known. A stage without a time on
  /// either side is left as it was.
  void learn(std::span<const double> profile_ms, std::span<const double> measured_ms);

  /// Measured over profile of each stage, 0 where nothing is known; and the steps behind it.
  const std::vector<double>& factors() const { return factors_; }
  std::int64_t steps() const { return steps_; }
  /// Goes on with what an earlier run of this layout learned. Its next step warms up again, and
  /// says nothing.
  void restore(std::vector<double> factors, std::int64_t steps);

  /// Whether anything was learned.
  bool known() const { return steps_ > 0; }

  /// Measured over profile; 1 where nothing was learned.
  double factor(StageId stage) const;

 private:
  std::vector<double> factors_;  ///< Per stage; 0: unknown.
  std::int64_t steps_ = 0;
  bool warms_up_ = false;  ///< With factors of an earlier run.
};

}  // namespace troupe::engine
