// Token-balanced context parallelism: which device of a context-parallel group computes attention
// for which block of query tokens, by the work the mask really leaves (Cornstarch section 3.3.2).
//
// Pure except the integer program, whose time limit makes its answer depend on the machine.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/token_mask.hpp"

namespace troupe::balancer {

/// Work of each block: the number of its tiles (block x tile) that are not fully masked. Blocks are
/// cut from the samples laid end to end; the last one may be shorter.
/// Cost: O(blocks + samples + spans), not the size of the mask.
///
/// Errors:
/// - as `check_samples`; invalid_argument for more than 2^23 blocks, or a shape below 1.
Result<std::vector<std::int64_t>> block_loads(std::span<const TokenSample> samples,
                                              BlockShape shape);

enum class TokenBlockMethod : std::uint8_t {
  lpt,          ///< Algorithm 1: heaviest first to the least load; at most 4/3 - 1/(3d) x optimum.
  ilp,          ///< Equation 3.4 through CBC; LPT where that is too large or finds nothing better.
  round_robin,  ///< Block i on device i mod d. No bound.
  /// 2 d equal runs of blocks; device k has runs k and 2 d - 1 - k: even for one causal sample.
  zigzag,
};

/// `lpt`, `ilp`, `round-robin`, `zigzag`. Errors: not_found, naming the nearest.
Result<TokenBlockMethod> token_block_method_from(std::string_view name);

struct TokenBlockOptions {
  BlockShape shape;
  std::int32_t device_count = 1;  ///< d, >= 1.
  TokenBlockMethod method = TokenBlockMethod::lpt;
  double time_limit_ms = 1000;  ///< For `ilp`.
};

struct TokenBlocks {
  std::vector<std::int32_t> owner;  ///< Device of each block.
  std::vector<std::int64_t> loads;  ///< Tiles per device.
};

/// Spreads the blocks over the devices. Ties: equal blocks later first (they are the long ones of
/// a causal mask), equal devices lower first. Fewer than block x devices tokens: all on device 0,
/// since a device without a block would only wait.
/// Cost: O(blocks log blocks): 0.2 ms for 256k tokens on 64 devices.
///
/// Errors: as `block_loads`; invalid_argument for device_count < 1 or a bad time limit.
Result<TokenBlocks> assign_token_blocks(std::span<const TokenSample> samples,
                                        const TokenBlockOptions& options);

/// Tiles [first, first + count) of a block's unmasked ones: what one kernel computes.
struct SubBlock {
  std::int32_t block = 0;
  std::int64_t first_tile = 0;
  std::int64_t tile_count = 0;
  std::int32_t unit = 0;  ///< Compute unit it is scheduled on.
};

struct SubBlockPlan {
  std::vector<SubBlock> sub_blocks;
  std::int64_t makespan_tiles = 0;   ///< Load of the busiest unit.
  std::int64_t partial_outputs = 0;  ///< Written and read again to combine a split block.
};

/// Cuts the blocks of one device into sub-blocks of at most `tiles_max` tiles, as equal as possible
/// within a block, and spreads them over compute units, largest first (Cornstarch section
/// 3.3.2.2). Smaller sub-blocks balance better and cost more partial outputs.
/// Ties: lower block, then lower unit. REQUIRES: tiles_max >= 1, unit_count >= 1, loads >= 0.
SubBlockPlan assign_sub_blocks(std::span<const std::int64_t> block_loads, std::int64_t tiles_max,
                               std::int32_t unit_count);

}  // namespace troupe::balancer
