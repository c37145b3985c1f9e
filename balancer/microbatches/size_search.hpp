// Search for the sizes of microbatches under which a pipeline idles least, by a score that the
// caller gives: tapers first, then free sizes, of encoder and LLM work apart.
//
// Pure and deterministic.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "balancer/loads/workload.hpp"

namespace troupe::balancer {

/// What these sizes are worth; smaller is better. Nothing: the budget is spent, stop.
using SizeScore = std::function<std::optional<double>(std::span<const Workload> sizes)>;

struct SizeSearchOptions {
  std::int64_t count = 2;            ///< Microbatches; >= 2.
  std::int64_t pipeline_stages = 2;  ///< Tapers are as long as a few of them.
  std::uint64_t seed = 0;            ///< Of the free changes.
  std::int64_t trials_max = 0;       ///< Free changes.
  /// How far a microbatch's share of the LLM work may be from its share of the encoder work, as a
  /// part of the latter: what the samples' variety allows. 0: one size for both. In [0, 1).
  double tilt = 0;
  std::vector<Workload> start = {};  ///< Sizes to begin with instead of tapers; empty or [count].
};

/// Sizes of both workloads per microbatch, each side relative to its largest, after scoring until
/// `score` returns nothing or nothing better is found; empty if it never returned anything:
/// - tapers, from a few for so many stages: each of their four numbers, both depths and both
///   lengths up and down in shrinking steps;
/// - from the best of them on, `trials_max` changes of the sizes around one of them, of a run, or
/// of
///   the least or the largest, on both sides or, with a tilt, on one. A long search also follows
///   changes that cost a little, ever less of it towards its end.
std::vector<Workload> search_sizes(const SizeSearchOptions& options, const SizeScore& score);

}  // namespace troupe::balancer
