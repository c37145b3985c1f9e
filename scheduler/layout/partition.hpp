// Cuts a list of layers into contiguous stages so that the slowest stage is as fast as possible.
//
// Exact (Entrain, eq. 4.1 states the problem). Pure; thread-safe.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::scheduler {

/// Stage i holds layers [cuts[i], cuts[i+1]).
struct Partition {
  std::vector<std::int32_t> cuts;  ///< 0 first, the layer count last; strictly ascending.
  double max = 0;                  ///< Cost of the slowest stage.

  friend bool operator==(const Partition&, const Partition&) = default;
};

/// The least maximum over all cuts into exactly `stage_count` stages of at least one layer each.
///
/// A stage's cost is the sum of its layers from the first to the last, in doubles; the result is
/// exact in that arithmetic. Ties: earlier stages take as many layers as stay within the maximum.
/// Cost: O(layers) memory; O(layers x 64) time at worst, a few passes as a rule, so a million
/// layers take milliseconds.
///
/// Errors:
/// - invalid_argument: a cost is negative or not finite (which one).
/// - infeasible: stage_count < 1 or more stages than layers; names the nearest count that works.
Result<Partition> partition(std::span<const double> costs, std::int64_t stage_count);

}  // namespace troupe::scheduler
