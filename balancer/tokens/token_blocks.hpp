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

}  // namespace troupe::balancer
