// Search for the sizes of microbatches under which a pipeline idles least, by a score that the
// caller gives: tapers first, then free sizes.
//
// Pure and deterministic.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace troupe::balancer {

/// What these sizes are worth; smaller is better. Nothing: the budget is spent, stop.
using SizeScore = std::function<std::optional<double>(std::span<const double> sizes)>;

/// Scores sizes of `count` microbatches until `score` returns nothing or nothing better is found:
/// - tapers, from a few for so many stages: each of their four numbers, both depths and both
///   lengths up and down in shrinking steps;
/// - from the best of them on, `trials_max` changes of one size or of a run of them, drawn from
///   `seed`; every better one is kept.
/// The caller remembers what it liked. REQUIRES: count >= 2.
void search_sizes(std::int64_t count, std::int64_t pipeline_stages, std::uint64_t seed,
                  std::int64_t trials_max, const SizeScore& score);

}  // namespace troupe::balancer
