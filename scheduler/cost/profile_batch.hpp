// How large a batch must be for its mix of work to be that of the data set (Entrain, algorithm 2).
//
// Pure and seeded.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::scheduler {

struct ProfileBatchInput {
  std::vector<std::vector<double>> samples;  ///< [sample][module] milliseconds.
  std::int32_t devices = 1;
  std::int32_t dp = 1;
  double alpha = 0.05;    ///< 1 - confidence; in (0, 1).
  double p_error = 0.05;  ///< Accepted share of batches that would allocate otherwise; in (0, 1).
  std::int64_t first_size = 1;
  std::uint64_t seed = 0;
};

struct ProfileBatch {
  std::int64_t b_min = 0;
  std::int64_t trials = 0;               ///< k, the validation batches of the accepted size.
  std::vector<std::int32_t> allocation;  ///< Devices of a replica per module.
};

/// Shares `devices` out in proportion to `work`, at least one each: the largest remainders win
/// (ties: the earlier entry); equal shares where all work is zero.
///
/// REQUIRES: devices >= work.size(), work finite and >= 0.
std::vector<std::int32_t> proportional_allocation(const std::vector<double>& work,
                                                  std::int32_t devices);

/// ceil(ln alpha / ln(1 - p)): so many equal batches in a row show that a differing one has at most
/// probability p, with confidence 1 - alpha. 59 for 0.05 and 0.05.
std::int64_t validation_trials(double alpha, double p_error);

/// Doubles the batch size from `first_size` until k random batches (drawn with replacement) lead to
/// the same allocation as a reference batch.
///
/// Errors:
/// - invalid_argument: no samples, unequal lists, negative or not finite times, alpha or p_error
///   outside (0, 1), first_size < 1, devices not divisible by dp (nearest one that is).
/// - infeasible: fewer devices per replica than modules; or batches of 2^22 samples still disagree,
///   because the true mix lies on the border of two allocations (both are named).
Result<ProfileBatch> profile_batch(const ProfileBatchInput& input);

/// `b_min`, or 0 where there is nothing to learn: fewer devices than modules, or a mix so near the
/// border of two allocations that no batch is large enough.
/// Errors: invalid_argument as `profile_batch`.
Result<std::int64_t> smallest_batch(const ProfileBatchInput& input);

/// What to tell a user whose batch is smaller than `b_min`; empty where it is not.
std::string batch_warning(std::int64_t global_batch, std::int64_t b_min);

}  // namespace troupe::scheduler
