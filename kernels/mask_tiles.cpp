#include "kernels/mask_tiles.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <optional>
#include <utility>

#include "kernels/gpu/attention.hpp"
#include "kernels/gpu_tile_lists.hpp"

namespace troupe::kernels {

namespace {

// Classifies the tiles of one block after the other.
class TileFinder {
 public:
  TileFinder(const TokenMask& mask, BlockShape shape)
      : mask_(mask),
        shape_(shape),
        covered_(static_cast<std::size_t>(tiles_before(mask.size()) + 1)),
        words_(covered_.size()) {
    for (TokenCount token = 0; token < mask.size(); ++token) {
      auto& words = words_[static_cast<std::size_t>(token / shape.tile)];
      const auto place = std::lower_bound(words.begin(), words.end(), mask.word(token));
      if (place == words.end() || *place != mask.word(token)) words.insert(place, mask.word(token));
    }
  }

  void append(TokenCount block, std::vector<MaskTile>& to) {
    const TokenCount begin = block * shape_.block;
    const TokenCount end = std::min(begin + shape_.block, mask_.size());
    const auto [first, last] = count(begin, end);
    const std::uint64_t common = common_modalities(begin, end);
    std::int64_t covering = 0;
    for (TokenCount tile = first; tile < last; ++tile) {
      covering += std::exchange(covered_[static_cast<std::size_t>(tile)], 0);
      const auto by_range = covering == end - begin ? TileTest::none : TileTest::ranges;
      const auto test = words_agree(common, tile) ? by_range : by_pair(begin, end, tile);
      if (test)
        to.push_back({static_cast<std::int32_t>(block), static_cast<std::int32_t>(tile), *test});
    }
    covered_[static_cast<std::size_t>(last)] = 0;
  }

 private:
  TokenCount tiles_before(TokenCount token) const {
    return (token + shape_.tile - 1) / shape_.tile;
  }

  // Notes at which tiles the ranges of the rows begin and end to cover a tile in full. Returns the
  // tiles from the first that one touches to behind the last: those of neighbouring rows leave
  // nothing between them but padding, whose words say so.
  std::pair<TokenCount, TokenCount> count(TokenCount begin, TokenCount end) {
    TokenCount first = tiles_before(mask_.size()), last = 0;
    for (TokenCount row = begin; row < end; ++row) {
      const auto& keys = mask_.range(row);
      if (keys.begin == keys.end) continue;
      first = std::min(first, keys.begin / shape_.tile);
      last = std::max(last, tiles_before(keys.end));
      const TokenCount from = tiles_before(keys.begin), to = keys.end / shape_.tile;
      if (to <= from) continue;
      ++covered_[static_cast<std::size_t>(from)];
      --covered_[static_cast<std::size_t>(to)];
    }
    return {std::min(first, last), last};
  }

  // That all causal words of the block have. A token of a span meets only its own word.
  std::uint64_t common_modalities(TokenCount begin, TokenCount end) const {
    std::uint64_t common = ~kCausalBit;
    for (TokenCount row = begin; row < end; ++row)
      if ((mask_.word(row) & kCausalBit) != 0) common &= mask_.word(row);
    return common;
  }

  // Whether each word of the tile shares a modality with all causal words of the block.
  bool words_agree(std::uint64_t common, TokenCount tile) const {
    const auto& words = words_[static_cast<std::size_t>(tile)];
    return std::all_of(words.begin(), words.end(),
                       [common](std::uint64_t word) { return (word & common) != 0; });
  }

  std::optional<TileTest> by_pair(TokenCount begin, TokenCount end, TokenCount tile) const {
    const TokenCount key_begin = tile * shape_.tile;
    const TokenCount key_end = std::min(key_begin + shape_.tile, mask_.size());
    bool any = false, all = key_end - key_begin == shape_.tile;
    for (TokenCount row = begin; row < end; ++row)
      for (TokenCount key = key_begin; key < key_end && (all || !any); ++key)
        (mask_.sees(row, key) ? any : all) = mask_.sees(row, key);
    if (!any) return std::nullopt;
    return all ? TileTest::none : TileTest::words;
  }

  const TokenMask& mask_;
  BlockShape shape_;
  std::vector<std::int64_t> covered_;              // By tile: change against the tile before.
  std::vector<std::vector<std::uint64_t>> words_;  // By tile: which ones it has, ascending.
};

}  // namespace

GpuLists gpu_lists_for(at::ScalarType type, std::int64_t head_dim) {
  if (type == at::kBFloat16 && gpu::takes_bf16(head_dim)) return GpuLists::bf16;
  return gpu::takes_plain(head_dim, type == at::kDouble) ? GpuLists::plain : GpuLists::none;
}

MaskTiles::MaskTiles(TokenMask mask, BlockShape shape, GpuLists lists)
    : mask_(std::move(mask)), shape_(shape) {
  assert(shape.block >= 1 && shape.tile >= 1);
  TileFinder finder(mask_, shape_);
  block_begin_.push_back(0);
  for (TokenCount block = 0; block * shape_.block < mask_.size(); ++block) {
    finder.append(block, by_block_);
    block_begin_.push_back(by_block_.size());
  }
  // By tile of keys, and there by block. Counted, not sorted: a pack of 128k tokens has millions.
  const auto tile_count = (mask_.size() + shape_.tile - 1) / shape_.tile;
  tile_begin_.assign(static_cast<std::size_t>(tile_count) + 1, 0);
  for (const MaskTile& entry : by_block_) ++tile_begin_[static_cast<std::size_t>(entry.tile) + 1];
  std::partial_sum(tile_begin_.begin(), tile_begin_.end(), tile_begin_.begin());
  by_tile_.resize(by_block_.size());
  std::vector<std::size_t> next = tile_begin_;
  for (const MaskTile& entry : by_block_)
    by_tile_[next[static_cast<std::size_t>(entry.tile)]++] = entry;
  if (lists != GpuLists::none)
    gpu_lists_ = std::make_shared<const gpu::HostLists>(mask_, lists == GpuLists::bf16);
}

}  // namespace troupe::kernels
