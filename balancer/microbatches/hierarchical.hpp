// Microbatches of one replica in two steps: balance the encoder, then let the LLM side of some
// samples run one microbatch later so that it is balanced too (Entrain section 4.5, Algorithm 4).
//
// Pure and deterministic: every node that sees the same workloads makes the same plan.

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "balancer/loads/workload.hpp"

namespace troupe::balancer {

/// Effective number of microbatches: min(K, floor(encoder sum / largest encoder workload)), at
/// least 1; K where the largest is 0. A sample cannot be cut, so more microbatches than this would
/// only be lighter than the largest sample's.
/// `shared`: K_eff, >= 1, where more than these samples decide it; at most K is taken.
std::int64_t effective_microbatches(std::span<const Workload> workloads, std::int64_t microbatches,
                                    std::optional<std::int64_t> shared = std::nullopt);

/// The same from the encoder work that microbatches share, and the largest that cannot be cut; both
/// >= 0, in one unit.
std::int64_t effective_microbatches(double sum, double largest, std::int64_t microbatches);

/// Encoder microbatches: first the upper half of the samples by LLM workload (floor(n / 2); ties to
/// the lower index), then the rest; in each by descending encoder workload (ties to the lower
/// index), each to the microbatch with the least encoder work so far (ties: least LLM work, then
/// the lower microbatch). A sample without encoder work goes to the least LLM work instead: it
/// cannot change the encoder's balance.
///
/// Bound: largest encoder load <= (2 - 1/K) x optimum (list scheduling, Graham).
/// Cost: O(n log n + n log K). REQUIRES: microbatches >= 1, workloads checked.
SampleGroups assign_stratified(std::span<const Workload> workloads, std::int64_t microbatches);

/// Pairwise deferral as published. The heavier floor(K/2) microbatches by LLM load are overloaded;
/// each gets a partner so that the largest load after moving the best subset (closest to half the
/// difference) is least; only microbatches above that threshold defer. Result in execution order:
/// overloaded, its partner, next overloaded (by descending load), ...; an unpaired one last.
///
/// Encoder groups keep their samples; samples move only within a pair, from the overloaded to the
/// partner right after it. The largest LLM load never rises.
/// Cost: O(n * 16384 / 64 + K^2 log K) in practice. Above 2048 microbatches partners are chosen by
/// order (heaviest with lightest), which needs no table of all pairs.
MicrobatchPlan defer_in_pairs(std::span<const Workload> workloads, SampleGroups encoder);

struct HierarchicalOptions {
  std::int64_t microbatches = 1;  ///< The user's K; >= 1. The plan may have fewer.
  bool deferral = true;           ///< False: the encoder's microbatches on both sides.
  /// Largest LLM load of a microbatch in milliseconds; stands for memory. None: unbounded.
  std::optional<double> llm_cap_ms = std::nullopt;
  /// `shared` of `effective_microbatches`.
  std::optional<std::int64_t> shared_microbatches = std::nullopt;
};

/// The published algorithm: K_eff, stratified assignment, pairwise deferral. Where the plan with
/// K_eff microbatches breaks `llm_cap_ms`, the plan with K is taken.
///
/// Errors:
/// - invalid_argument: a bad workload, microbatches < 1 or the cap is not > 0.
/// - infeasible: some LLM microbatch exceeds the cap even with K; names the load that would do.
Result<MicrobatchPlan> assign_hierarchical(std::span<const Workload> workloads,
                                           const HierarchicalOptions& options);

}  // namespace troupe::balancer
