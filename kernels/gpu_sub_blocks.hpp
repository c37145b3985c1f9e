// Cutting blocks with much to do into sub-blocks, so that no thread block of a GPU works on alone
// when the others are done (Cornstarch section 3.3.2).
//
// Pure values. Internal to kernels/.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/gpu/attention.hpp"

namespace troupe::kernels::gpu {

/// Where the parts of a list run.
struct Spread {
  std::int64_t copies = 1;  ///< Heads of the grid: each part is computed once for each; >= 0.
  std::int64_t places = 0;  ///< Thread blocks that run at once; 0: nothing is cut.
};

/// What thread blocks do, and what is added up afterwards.
struct SubBlocks {
  std::vector<SubBlock> parts;     ///< Those with most turns first; ties by block and turn.
  std::vector<SplitBlock> splits;  ///< Blocks that were cut, ascending.
  std::int32_t slots = 0;          ///< Partial results, of each copy.
};

/// What a partial result costs, in turns: it is written and read where a turn reads less.
inline constexpr std::int64_t kPartialTurns = 3;
/// What it costs to add partial results up at all: one more launch.
inline constexpr std::int64_t kMergeTurns = 2;
/// At most so many parts are meant for a place: none is longer than a fourth of its mean, rounded
/// up.
inline constexpr std::int64_t kSharesMax = 4;

/// Every block with more than `turns_max` turns (>= 1) in as few parts as none has more, of equal
/// length but for one turn. turns: by block.
SubBlocks cut_blocks(std::span<const std::int32_t> turns, std::int32_t turns_max);

/// Turns until the last place is done, where each free place takes the next part in their order,
/// copies one after the other; what partial results cost included. REQUIRES: places >= 1.
std::int64_t makespan(const SubBlocks& list, const Spread& spread);

/// The fewest parts that end soonest by `makespan`: whole blocks, or none longer than the mean of a
/// place, half or a fourth of it. Never later than whole blocks; at most 5/4 of the mean and 30
/// turns, as long as a grid holds the parts. At most 8 partial results for each place. Sizes alone
/// decide, so the same list is cut the same way each time.
/// Cost: O(parts * copies * log(places)) where some block is longer than a fourth of the mean, else
/// O(blocks * log(blocks)).
SubBlocks balance_blocks(std::span<const std::int32_t> turns, const Spread& spread);

}  // namespace troupe::kernels::gpu
