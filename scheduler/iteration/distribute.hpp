// How many microbatches each pipeline gets, so that pipelines of unequal speed finish together
// (Oobleck, eq. 2.6).
//
// Pure; thread-safe. Minimises sum_i (N_i T_i - mean)^2 over whole N_i >= 1 with sum N_i x b = B,
// where the mean is that of the N_i T_i themselves; exact, unless pipelines differ so wildly that
// the search is cut off (`kDistributeWorkMax`). Ties go to the lower maximum of N_i T_i.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::scheduler {

/// Pipelines of equal speed, for callers that have many of them.
struct SpeedGroup {
  double microbatch_ms = 0;  ///< T: time per microbatch; > 0.
  std::int64_t count = 0;    ///< Pipelines; >= 1.
};

/// Members of a group differ by at most one microbatch.
struct MicrobatchShare {
  std::int64_t microbatches = 0;  ///< Of each member, and one more for the first `extra`.
  std::int64_t extra = 0;

  friend bool operator==(const MicrobatchShare&, const MicrobatchShare&) = default;
};

struct GroupDistribution {
  std::vector<MicrobatchShare> shares;  ///< One per group, in the caller's order.
  double max_ms = 0;                    ///< Largest N_i T_i.
  double deviation = 0;                 ///< The sum that eq. 2.6 minimises.
  std::int64_t work = 0;                ///< Steps of the search; see `kDistributeWorkMax`.
  bool optimal = true;                  ///< False: the search was cut off with the best so far.
};

inline constexpr std::size_t kDistributePipelinesMax = 10'000;
/// Groups looked at before the search ends with the best so far, below a second. Reached only by
/// hundreds of pipelines whose speeds span several orders of magnitude.
inline constexpr std::int64_t kDistributeWorkMax = 20'000'000;
inline constexpr double kMicrobatchMsMin = 1e-9;
inline constexpr double kMicrobatchMsMax = 1e12;
inline constexpr double kSpeedRatioMax = 1e6;

/// Refuses a time per microbatch out of range, and pipelines too different to share a batch.
std::optional<Error> check_speed(double microbatch_ms, const std::string& where);
std::optional<Error> check_speed_ratio(double fastest_ms, double slowest_ms,
                                       const std::string& where);

/// Solves eq. 2.6 for grouped pipelines.
///
/// For a fixed mean the problem is separable and convex, so a greedy exchange solves it; the best
/// mean lies in a small window around B / sum(1/T), and all solutions in the window are visited in
/// order. Cost: O(pipelines x groups) in practice.
/// REQUIRES: times within the limits above, distinct or not; microbatches >= number of pipelines.
GroupDistribution distribute_groups(std::span<const SpeedGroup> groups, std::int64_t microbatches,
                                    std::int64_t work_max = kDistributeWorkMax);

/// One number per pipeline.
struct Distribution {
  std::vector<std::int64_t> microbatches;
  bool optimal = true;  ///< As in `GroupDistribution`.
};

/// `distribute`, and whether it is exact. Errors: as `distribute`.
Result<Distribution> distribute_proven(std::span<const double> microbatch_ms,
                                       std::int64_t global_batch, std::int64_t microbatch_size,
                                       std::int64_t work_max = kDistributeWorkMax);

/// Microbatches per pipeline, in the order of `microbatch_ms`; among equal pipelines the earlier
/// ones get the extra microbatch.
///
/// Errors:
/// - invalid_argument: a time out of range, times more than a millionfold apart, no pipeline, more
/// than
///   `kDistributePipelinesMax`, a batch or microbatch size below 1.
/// - infeasible: the batch is no multiple of the microbatch size, or has fewer microbatches than
///   there are pipelines; the fix names the nearest batch that works (of two equally near ones the
///   smaller).
Result<std::vector<std::int64_t>> distribute(std::span<const double> microbatch_ms,
                                             std::int64_t global_batch,
                                             std::int64_t microbatch_size);

/// The batch nearest to `global_batch` that is a multiple of `microbatch_size` and gives each of
/// `pipeline_count` pipelines a microbatch; of two equally near ones the smaller. All >= 1.
std::int64_t nearest_batch(std::int64_t global_batch, std::int64_t microbatch_size,
                           std::int64_t pipeline_count);

}  // namespace troupe::scheduler
