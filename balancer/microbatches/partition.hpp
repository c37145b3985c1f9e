// DFLOP's online microbatch scheduler: samples into m buckets so that the largest of all encoder
// and LLM sums is least (section 3.4, equation 6).
//
// Pure and deterministic except `partition_ilp`, whose time limit makes its answer depend on the
// machine: run it once and send the result. No time limit elsewhere: budgets count evaluations.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balancer/loads/workload.hpp"

namespace troupe::balancer {

/// The workloads with the LLM's scaled to the encoder's sum; as they are where either sum is 0.
/// DFLOP minimises over stage times; where whole modules are given, the layout gives each module
/// stages in proportion to its work, so per stage both workloads have the same sum.
std::vector<Workload> equally_binding(std::span<const Workload> workloads);

/// The objective: the largest encoder or LLM sum of any bucket.
double largest_sum(std::span<const Workload> workloads, const SampleGroups& buckets);

/// No partition has a smaller largest sum. The largest of, for either workload: the mean over the
/// buckets; the largest sample; the sum of the smallest ceil(n/m) samples (some bucket holds that
/// many); the m-th plus the (m+1)-th largest sample (two of the m+1 largest share a bucket).
/// Cost: O(n log n). REQUIRES: bucket_count >= 1.
double partition_lower_bound(std::span<const Workload> workloads, std::int64_t bucket_count);

/// Longest processing time first, as DFLOP falls back to: samples by descending encoder + LLM work
/// (ties to the lower index), each to the bucket whose larger sum is then least (ties to the lower
/// bucket). Where one workload is zero throughout, this is Graham's rule with its bound of
/// 4/3 - 1/(3m) times the optimum; with both, list scheduling's 2 x (2 - 1/m).
/// Beyond n m = 2 x 10^9 each goes to the bucket whose larger sum is least before it.
/// Cost: O(n log n + n m). REQUIRES: bucket_count >= 1, workloads checked.
SampleGroups partition_lpt(std::span<const Workload> workloads, std::int64_t bucket_count);

}  // namespace troupe::balancer
