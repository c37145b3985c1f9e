// Spreads a global batch over the replicas (pipelines) of a job, which may differ in speed.
//
// Pure and deterministic.

#pragma once

#include <cstdint>
#include <span>

#include "balancer/loads/workload.hpp"

namespace troupe::balancer {

/// Takes samples by descending encoder workload and gives each to the replica that would finish
/// its LLM work first with it: (LLM work so far + this sample's) / speed. For equal speeds this is
/// the replica with the least LLM work, as published.
///
/// `speeds`: work per millisecond of each replica, finite and > 0; only their ratios matter.
/// Ties: equal encoder workloads by lower sample index; equal finishing times by the least encoder
/// work per speed, then by the lower replica. A replica may stay empty.
/// Cost: O(n log n + n log(replicas) * speeds that differ). No bound on the largest LLM load better
/// than list scheduling's, sum / replicas + largest sample; the encoder load has none. Source:
/// Entrain section 4.3; speeds are Troupe's.
///
/// Errors:
/// - invalid_argument: a bad workload, no speed, or a speed that is not finite and > 0.
Result<SampleGroups> assign_replicas(std::span<const Workload> workloads,
                                     std::span<const double> speeds);

/// As `assign_replicas`, then exchanges samples between replicas while the largest (work / speed)
/// over both workloads falls; never worse in that measure. Balances the encoder too, which the
/// published rule leaves to the order of the samples.
///
/// `evaluations_max`: candidate exchanges looked at; bounds the time.
/// Errors: as `assign_replicas`.
Result<SampleGroups> assign_replicas_search(std::span<const Workload> workloads,
                                            std::span<const double> speeds,
                                            std::int64_t evaluations_max = 1'000'000);

}  // namespace troupe::balancer
