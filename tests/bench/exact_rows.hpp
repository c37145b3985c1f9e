// Rows between nodes of batches as small as those of exchange_bench.py: what the planner sends,
// what it could, and what the linear program would were samples divisible.

#pragma once

#include <cstddef>

namespace troupe::bench {

/// Rows of a phase that leave their node, over all rows; means over batches.
struct SmallBatches {
  double planned = 0;
  double exact = 0;      ///< No deal of whole samples whose last replica ends as early sends less.
  double divisible = 0;  ///< `FarRows::bound`.
};

/// Four nodes, each with a replica of an encoder and of the llm; 32 samples a batch, half of them
/// with log-normal work in the encoder, on nodes at random; all rounds at once. `spread`: of that
/// work. Throws std::runtime_error where a program has no solution.
SmallBatches small_batches(double spread, std::size_t batches);

}  // namespace troupe::bench
