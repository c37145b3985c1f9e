// The work that a mask leaves: which tiles of keys each block of queries has to compute, worked out
// once for all heads and layers that share the mask.
//
// Pure values: immutable once made, hence free to share between threads.

#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/vocabulary/token_mask.hpp"

namespace troupe::kernels {

namespace gpu {
struct HostLists;
}

/// For which kernels of a GPU work lists are made with the tiles of a mask.
enum class GpuLists : std::uint8_t {
  none,
  plain,  ///< In fp32 and fp64, also of bf16 heads that tensor cores do not take.
  bf16,   ///< On tensor cores.
};

/// Those that compute attention of heads of this type and size: the one rule for who makes lists
/// and who reads them. `none`: there is no kernel of ours for such heads.
/// REQUIRES: bf16, fp32 or fp64.
GpuLists gpu_lists_for(at::ScalarType type, std::int64_t head_dim);

/// What decides which pairs of a tile see each other.
enum class TileTest : std::uint8_t {
  none,    ///< All do.
  ranges,  ///< `TokenMask::range` of the query alone.
  words,   ///< Ranges and words: text that leaves out a modality, or padding.
};

/// A tile of keys that some query of a block sees.
struct MaskTile {
  std::int32_t block = 0;
  std::int32_t tile = 0;
  TileTest test = TileTest::none;

  friend bool operator==(const MaskTile&, const MaskTile&) = default;
};

/// All tiles of a mask in which some query sees some key. Blocks and tiles are cut from the pack
/// from its beginning; the last ones may be shorter, and a shorter tile always has a test.
class MaskTiles {
 public:
  /// REQUIRES: a shape of at least 1 each.
  /// Cost: O(tokens + blocks * tiles within reach of a block), more where words decide; with lists
  /// for a GPU as much again for each shape of its kernels' tiles.
  MaskTiles(TokenMask mask, BlockShape shape, GpuLists lists = GpuLists::none);

  const TokenMask& mask() const { return mask_; }  ///< That they were made from.
  BlockShape shape() const { return shape_; }      ///< The same.
  /// Those that were asked for, in host memory (gpu_tile_lists.hpp); null: none were.
  const std::shared_ptr<const gpu::HostLists>& gpu_lists() const { return gpu_lists_; }
  /// Blocks of queries, also those that see nothing.
  std::int64_t block_count() const { return static_cast<std::int64_t>(block_begin_.size()) - 1; }
  /// Tiles of keys, also those that nobody sees.
  std::int64_t tile_count() const { return static_cast<std::int64_t>(tile_begin_.size()) - 1; }

  /// Tiles of all blocks.
  std::int64_t size() const { return static_cast<std::int64_t>(by_block_.size()); }

  /// Tiles that a block of queries meets, ascending.
  std::span<const MaskTile> of_block(std::int64_t block) const {
    return part(by_block_, block_begin_, block);
  }
  /// The same by tile of keys, ascending block: what a tile's gradients add up.
  std::span<const MaskTile> of_tile(std::int64_t tile) const {
    return part(by_tile_, tile_begin_, tile);
  }

 private:
  static std::span<const MaskTile> part(const std::vector<MaskTile>& tiles,
                                        const std::vector<std::size_t>& begin, std::int64_t index) {
    const auto at = static_cast<std::size_t>(index);
    return std::span(tiles).subspan(begin[at], begin[at + 1] - begin[at]);
  }

  TokenMask mask_;
  BlockShape shape_;
  std::vector<MaskTile> by_block_, by_tile_;
  std::vector<std::size_t> block_begin_, tile_begin_;  // One more than there are.
  std::shared_ptr<const gpu::HostLists> gpu_lists_;
};

}  // namespace troupe::kernels
