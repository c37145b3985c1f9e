// The input and output every microbatch policy shares: predicted work per sample, and which
// samples run together on either side of the encoder-LLM boundary.
//
// Pure values. Times are predicted milliseconds of whole modules; indices count from 0.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::balancer {

/// Predicted work of one sample. With several encoders, `encoder_ms` is their sum.
struct Workload {
  double encoder_ms = 0;  ///< Finite and >= 0.
  double llm_ms = 0;      ///< Finite and >= 0.

  friend bool operator==(const Workload&, const Workload&) = default;
  Workload& operator+=(const Workload& other) {
    encoder_ms += other.encoder_ms;
    llm_ms += other.llm_ms;
    return *this;
  }
  Workload& operator-=(const Workload& other) {
    encoder_ms -= other.encoder_ms;
    llm_ms -= other.llm_ms;
    return *this;
  }
};

/// Sample indices per group (replica, microbatch or bucket); ascending within a group.
using SampleGroups = std::vector<std::vector<std::int32_t>>;

/// The microbatches of one replica, in execution order. Both sides hold every sample once; without
/// deferral they are equal.
struct MicrobatchPlan {
  SampleGroups encoder;
  SampleGroups llm;
  /// Samples whose LLM microbatch is not the one of their encoder microbatch; ascending.
  std::vector<std::int32_t> deferred;
  /// Microbatches (position in execution order) that exchange samples: {giver, receiver}.
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;

  friend bool operator==(const MicrobatchPlan&, const MicrobatchPlan&) = default;
};

/// Refuses what no policy can plan with.
///
/// Errors:
/// - invalid_argument: a workload is negative, NaN or infinite, the sum overflows, or there are
///   more samples than 32 bits count. The message names the sample and the field.
Status check_workloads(std::span<const Workload> workloads);

/// Refuses a group count below 1 or above `kGroupCountMax`.
///
/// Errors:
/// - invalid_argument: as said; `what` names the count in the message.
Status check_group_count(std::int64_t count, const char* what);

/// More groups than this is a mistake in the input, not a cluster.
inline constexpr std::int64_t kGroupCountMax = 10'000'000;

/// Sum of all workloads.
Workload total(std::span<const Workload> workloads);

/// Sum per group. Cost: O(samples).
std::vector<Workload> group_loads(std::span<const Workload> workloads, const SampleGroups& groups);

/// The group of each of `sample_count` samples; 0 for one that no group names. Cost: O(samples).
std::vector<std::int32_t> group_of(const SampleGroups& groups, std::size_t sample_count);

/// The part of each sample within its encoder microbatch. Parts are what an encoder runs backward
/// apart (Entrain 4.5): one per llm microbatch that the encoder microbatch feeds, in their order.
/// `has_rows`, per sample: it has encoder work; one without goes with part 0. Cost: O(n log n).
std::vector<std::int32_t> part_of(const MicrobatchPlan& plan, const std::vector<bool>& has_rows);

/// Mean, population standard deviation and maximum of one side's group loads; 0 of none.
struct Spread {
  double mean_ms = 0;
  double std_ms = 0;
  double max_ms = 0;
};
Spread encoder_spread(std::span<const Workload> loads);  ///< Of `encoder_ms`.
Spread llm_spread(std::span<const Workload> loads);      ///< Of `llm_ms`.

/// The plan in which every microbatch is the same on both sides.
MicrobatchPlan without_deferral(SampleGroups groups);

/// The plan with these groups on either side; finds the deferred samples. Groups are sorted.
MicrobatchPlan make_plan(SampleGroups encoder, SampleGroups llm);

/// True if `groups` hold each of 0 .. sample_count-1 exactly once.
bool is_partition(const SampleGroups& groups, std::size_t sample_count);

}  // namespace troupe::balancer
