// What a job has measured of its work beside what its profile says. A part of its progress: a job
// that goes on plans and predicts with it as if it had never stopped.
//
// Values only.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/units.hpp"

namespace troupe {

/// A stage as what was learned of it knows it.
struct LearnedStage {
  std::string place;                 ///< `vision 0-2, vision_projector 0-1 on 0.0`: runs, device.
  std::vector<std::string> modules;  ///< Of its runs, each once, in order.
  double speed = 0;                  ///< Measured over profiled time; 0: unknown.

  friend bool operator==(const LearnedStage&, const LearnedStage&) = default;
};

/// Measured over profiled time of all work of about one size.
struct LearnedFactor {
  std::int32_t stage = 0;  ///< Index into the stages.
  std::string module;      ///< Of a sample; empty: of a part, in all of the stage's modules.
  TokenCount tokens = 0;   ///< The class of sizes, by its largest.
  double factor = 1;
  std::int64_t measurements = 0;

  friend bool operator==(const LearnedFactor&, const LearnedFactor&) = default;
};

struct LearnedCosts {
  /// When the profile was measured that all of it is relative to (UTC); empty: it was computed.
  std::string profile;
  std::vector<LearnedStage> stages;  ///< Of the layout; none: nothing was learned.
  std::int64_t speed_steps = 0;      ///< That the speeds of stages come from.
  std::vector<LearnedFactor> samples, parts;
  // Whether measuring still pays: `balancer::AdaptiveCorrection`.
  bool watches = true;
  double benefit = 0;              ///< Sum over the steps of the running window.
  std::int64_t benefit_steps = 0;  ///< Of that window.

  friend bool operator==(const LearnedCosts&, const LearnedCosts&) = default;
};

}  // namespace troupe
