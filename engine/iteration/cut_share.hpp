// A replica's share of a phase's rounds, cut into microbatches.
//
// Pure and deterministic. Helper of phase_exchange.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"

namespace troupe::engine {

/// One sample of a round or piece of one, and where the llm wants it.
struct WantedUnit {
  std::int32_t sample = 0;
  std::size_t cut = 0;         ///< Of which llm replica.
  std::size_t microbatch = 0;  ///< Of that replica.
  std::size_t round = 0;
  double work = 0;
};

struct ShareCut {
  std::size_t slices = 1;     ///< Microbatches that a share of a round becomes; >= 1.
  bool by_llm = false;        ///< Instead: one for each microbatch of the llm that it feeds.
  bool splits_parts = false;  ///< As `SpreadRules` has it.
};

/// The microbatches of a share whose units stand round by round: each round's of about as much work
/// and in the order of the share, or `by_llm` the one that is needed first in front. Samples
/// without work are kept out of the way: `by_llm` they go with the first microbatch, and in a
/// microbatch with the first part. Cost: O(units x log(units)).
MicrobatchList cut_share(const std::vector<WantedUnit>& share, const ShareCut& how);

}  // namespace troupe::engine
