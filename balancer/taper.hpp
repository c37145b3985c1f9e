// Microbatches that grow at the start of an iteration and shrink at its end, so that a pipeline
// fills and drains with little work.
//
// Pure and deterministic. In 1F1B nothing else can run while the first microbatch travels down the
// pipeline and the gradient of the last one travels back: with equal microbatches S - 1 of K + S -
// 1 slots. Only those two need to be small. Their neighbours may be larger by what a stage works
// off before they arrive, and so on until all are of full size.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balancer/partition_search.hpp"
#include "balancer/workload.hpp"

namespace troupe::balancer {

/// Size of microbatch i of K, relative to the largest: the least of 1, first * growth^i and
/// last * shrink^(K-1-i).
struct Taper {
  double first = 1;   ///< In (0, 1].
  double growth = 1;  ///< >= 1.
  double last = 1;    ///< In (0, 1].
  double shrink = 1;  ///< >= 1.

  friend bool operator==(const Taper&, const Taper&) = default;
};

/// A taper for a pipeline of so many stages when nothing else is known. The growth 1 + 0.8/S was
/// fitted to simulations of 1F1B with 2 to 8 stages; twice of it leaves gaps.
Taper default_taper(std::int64_t pipeline_stages);

/// The sizes, in order of execution. Shape: [count].
std::vector<double> taper_sizes(const Taper& taper, std::int64_t count);

/// Samples into one microbatch per entry of `sizes`, encoder and LLM work both in proportion to it:
/// longest first, then `improve_partition`. Microbatches stand in the order of `sizes`.
/// Cost: O(n log n) plus the search. REQUIRES: sizes > 0, at least one.
SampleGroups tapered_partition(std::span<const Workload> workloads, std::span<const double> sizes,
                               const SearchBudget& budget);

}  // namespace troupe::balancer
