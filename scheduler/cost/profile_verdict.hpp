// Whether a profile is good enough to plan with, in a word and a sentence.
//
// Pure. What counts is what a mean sample of the data takes: a kind of layer that is predicted
// badly and takes no time does no harm.

#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/cost/cost_model.hpp"

namespace troupe::scheduler {

/// Forward and backward of one sample on one device, mean over samples, without what launching
/// costs a microbatch; frozen-aware.
struct MeanSample {
  double total_ms = 0;
  std::vector<double> module_ms;          ///< In the model's order.
  std::map<std::string, double> kind_ms;  ///< By kind of layer.
};

/// Cost: O(samples x layers). Zeros without samples. Errors: as `SampleSums::at`.
Result<MeanSample> mean_sample(const CostModel& costs, std::span<const SampleShape> samples);

/// What keeps a profile from being what it looks like.
struct ProfileDoubts {
  double disturbed_share = 0;  ///< Of the runs that count, 0 to 1.
  bool warned = false;         ///< Something was found that keeps predictions from holding.
};

struct ProfileVerdict {
  std::string word;  ///< `good`, `fair`, `poor`, `noisy`, `computed` or `unknown`.
  std::string why;   ///< With what to do about it, where something can be done.
  /// Share by which the time of a mean sample may be missed, about: errors of kinds on sizes left
  /// out of the fit, each by its worst curve, weighed by the time they take. None: no size could
  /// be left out.
  std::optional<double> expected_error;
};

/// `sample`: all zero where the data are not known, then kinds weigh alike.
ProfileVerdict profile_verdict(const CostModel& costs, const MeanSample& sample,
                               const ProfileDoubts& doubts);

inline constexpr double kGoodError = 0.10;  ///< Expected errors up to this are `good`,
inline constexpr double kFairError = 0.25;  ///< and up to this `fair`.
inline constexpr double kNoisyShare = 0.25;

}  // namespace troupe::scheduler
