// What other systems and simple habits do, for comparison: encoder and LLM share microbatches.
//
// Pure and deterministic. Every function returns `microbatches` groups, some of them empty when
// there are fewer samples. REQUIRES everywhere: microbatches >= 1, workloads checked.

#pragma once

#include <cstdint>
#include <span>

#include "balancer/loads/workload.hpp"

namespace troupe::balancer {

/// Runs of consecutive samples in the order of arrival, counts equal up to one (longer runs first).
/// What a plain sampler does. No bound. Cost: O(n).
SampleGroups in_order_groups(std::size_t sample_count, std::int64_t microbatches);

/// As `in_order_groups` after a shuffle from `seed`. No bound. Cost: O(n).
SampleGroups random_groups(std::size_t sample_count, std::int64_t microbatches, std::uint64_t seed);

/// The groups of `in_order_groups` in another order of execution, after DistTrain's reordering
/// between microbatches: the smallest microbatch (encoder + LLM work) first, so that every stage
/// starts early; the `pipeline_stages - 1` next smallest at the end, where the pipeline drains; in
/// between always the one whose encoder work is closest to the LLM work of the one before it,
/// which is the interval it has to fill. Ties: the earlier microbatch.
/// Reorders, never balances: the loads are those of arrival. Cost: O(n + K^2); above 4096
/// microbatches the middle keeps its order. Source: DistTrain as Entrain section 4.7 uses it.
SampleGroups disttrain_groups(std::span<const Workload> workloads, std::int64_t microbatches,
                              std::int64_t pipeline_stages);

/// Longest processing time first on the LLM workload alone: what balances text models.
/// Ties: lower sample, then lower microbatch. Bound: largest LLM load <= (4/3 - 1/(3K)) x optimum
/// (Graham, 1969); none for the encoder. Cost: O(n log n + n log K).
SampleGroups llm_only_groups(std::span<const Workload> workloads, std::int64_t microbatches);

/// Largest differencing (Karmarkar and Karp, 1982) for K ways on encoder + LLM work: repeatedly
/// merges the two partial partitions with the largest spread, heavy against light.
/// Ties: the partial partition that is older. Better than LPT on average, no better bound known for
/// K > 2. Cost: O(n log n + n K log K) worst case, O(n) memory; beyond n K = 10^9, longest first on
/// the same work instead.
SampleGroups karmarkar_karp_groups(std::span<const Workload> workloads, std::int64_t microbatches);

}  // namespace troupe::balancer
