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

#include "balancer/loads/workload.hpp"
#include "balancer/microbatches/partition_search.hpp"

namespace troupe::balancer {

/// Size of microbatch i of K, relative to the largest: the smaller of
/// 1 - (1 - first) (1 - i/rise)^2 over the first `rise` microbatches and the same from the back.
/// Fast at first and then ever slower, as the search over free sizes in simulations of 1F1B has it.
struct Taper {
  double first = 1;  ///< In (0, 1].
  double rise = 1;   ///< Microbatches until the full size; >= 1.
  double last = 1;   ///< In (0, 1].
  double fall = 1;   ///< Microbatches from the full size on; >= 1.

  friend bool operator==(const Taper&, const Taper&) = default;
};

/// A gentle taper for a pipeline of so many stages when nothing else is known, which no schedule
/// answers with idle time: GPipe gains little from a taper and 1F1B much from deeper ones. The way
/// back is longer, since backwards of larger microbatches are still under way.
Taper default_taper(std::int64_t pipeline_stages);

/// The sizes, alike for both workloads, in order of execution. Shape: [count].
std::vector<Workload> taper_sizes(const Taper& taper, std::int64_t count);

/// Samples into one microbatch per entry of `sizes`, encoder and LLM work each in proportion to it:
/// longest first, then `improve_partition`. Microbatches stand in the order of `sizes`.
/// Cost: O(n log n) plus the search. REQUIRES: sizes > 0, at least one.
SampleGroups tapered_partition(std::span<const Workload> workloads, std::span<const Workload> sizes,
                               const SearchBudget& budget);

}  // namespace troupe::balancer
