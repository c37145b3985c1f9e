#include "kernels/gpu_tile_lists.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/device_copies.hpp"

namespace troupe::kernels::gpu {

namespace {

static_assert(sizeof(TileEntry) == 2 * sizeof(std::int32_t));

std::int32_t narrow(std::size_t value) { return static_cast<std::int32_t>(value); }

}  // namespace

TileLists::TileLists(const TokenMask& mask, bool bf16, at::Device device) {
  const auto lists = [&](std::int64_t blocks, auto list_of, bool by_query) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(blocks)), begin{0}, entries;
    for (std::int64_t block = 0; block < blocks; ++block) {
      for (const MaskTile& tile : list_of(block)) {
        entries.push_back(by_query ? tile.tile : tile.block);
        entries.push_back(static_cast<std::int32_t>(tile.test));
      }
      begin.push_back(narrow(entries.size() / 2));
    }
    // Long ones first, so that the last to end are short.
    std::iota(order.begin(), order.end(), 0);
    const auto length = [&](std::int32_t block) {
      const auto at = static_cast<std::size_t>(block);
      return begin[at + 1] - begin[at];
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return length(a) > length(b); });
    const auto send = [&](const std::vector<std::int32_t>& values) {
      return to_device(at::tensor(values, at::kInt), device);
    };
    return Lists{send(order), send(begin), send(entries)};
  };
  const auto by_block = [&](const MaskTiles& tiles) {
    return lists(
        tiles.block_count(), [&](std::int64_t block) { return tiles.of_block(block); }, true);
  };
  const auto back = bf16 ? kBackTile : kPlainTile;
  const MaskTiles both(mask, BlockShape{back, back});
  back_by_query_ = by_block(both);
  by_key_ = lists(
      both.tile_count(), [&](std::int64_t tile) { return both.of_tile(tile); }, false);
  by_query_ = bf16 ? by_block(MaskTiles(mask, BlockShape{kQueryBlock, kKeyTile})) : back_by_query_;
  const auto ranges = at::empty({mask.size(), 2}, at::kInt),
             words = at::empty({mask.size()}, at::kLong);
  auto* range = ranges.mutable_data_ptr<std::int32_t>();
  auto* word = words.mutable_data_ptr<std::int64_t>();
  for (TokenCount token = 0; token < mask.size(); ++token) {
    *range++ = static_cast<std::int32_t>(mask.range(token).begin);
    *range++ = static_cast<std::int32_t>(mask.range(token).end);
    *word++ = static_cast<std::int64_t>(mask.word(token));
  }
  ranges_ = to_device(ranges, device);
  words_ = to_device(words, device);
}

std::shared_ptr<const TileLists> TileLists::of(const std::shared_ptr<const MaskTiles>& tiles,
                                               bool bf16, at::Device device) {
  struct Last {
    std::weak_ptr<const MaskTiles> tiles;
    bool bf16 = false;
    at::Device device = at::kCPU;
    std::shared_ptr<const TileLists> lists;
  };
  static thread_local Last last;
  if (!last.lists || last.tiles.lock() != tiles || last.bf16 != bf16 || last.device != device)
    last = {tiles, bf16, device, std::make_shared<const TileLists>(tiles->mask(), bf16, device)};
  return last.lists;
}

void TileLists::describe(Attention& attention) const {
  const auto list = [](const Lists& lists) {
    return TileList{
        lists.order.const_data_ptr<std::int32_t>(), lists.begin.const_data_ptr<std::int32_t>(),
        static_cast<const TileEntry*>(lists.entries.const_data_ptr()), lists.order.size(0)};
  };
  attention.by_query = list(by_query_);
  attention.back_by_query = list(back_by_query_);
  attention.by_key = list(by_key_);
  attention.mask = {ranges_.const_data_ptr<std::int32_t>(), words_.const_data_ptr<std::int64_t>()};
}

}  // namespace troupe::kernels::gpu
