#include "kernels/gpu_tile_lists.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/device_copies.hpp"

namespace troupe::kernels::gpu {

namespace {

static_assert(sizeof(TileEntry) == 2 * sizeof(std::int32_t));

std::int32_t narrow(std::size_t value) { return static_cast<std::int32_t>(value); }

}  // namespace

HostLists::HostLists(const TokenMask& mask, bool for_bf16) : bf16(for_bf16) {
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
    return Order{std::move(order), std::move(begin), std::move(entries)};
  };
  const auto by_block = [&](const MaskTiles& tiles) {
    return lists(
        tiles.block_count(), [&](std::int64_t block) { return tiles.of_block(block); }, true);
  };
  const auto back = bf16 ? kBackTile : kPlainTile;
  const MaskTiles both(mask, BlockShape{back, back});
  back_by_query = by_block(both);
  by_key = lists(
      both.tile_count(), [&](std::int64_t tile) { return both.of_tile(tile); }, false);
  if (bf16) by_query = by_block(MaskTiles(mask, BlockShape{kQueryBlock, kKeyTile}));
  const auto tokens = static_cast<std::size_t>(mask.size());
  ranges.reserve(2 * tokens);
  words.reserve(tokens);
  for (TokenCount token = 0; token < mask.size(); ++token) {
    ranges.push_back(static_cast<std::int32_t>(mask.range(token).begin));
    ranges.push_back(static_cast<std::int32_t>(mask.range(token).end));
    words.push_back(static_cast<std::int64_t>(mask.word(token)));
  }
}

TileLists::TileLists(const std::shared_ptr<const HostLists>& made, at::Device device) {
  const auto send = [&](const auto& values, at::ScalarType type) {
    // Only read. What a host reads in place lives as long as its tensor.
    auto* from = const_cast<void*>(static_cast<const void*>(values.data()));
    return to_device(at::from_blob(
                         from, {std::ssize(values)}, [made](void*) {}, type),
                     device);
  };
  const auto send_order = [&](const HostLists::Order& lists) {
    return BlockOrder<at::Tensor>{send(lists.order, at::kInt), send(lists.begin, at::kInt),
                                  send(lists.entries, at::kInt)};
  };
  ranges_ = send(made->ranges, at::kInt);
  words_ = send(made->words, at::kLong);
  back_by_query_ = send_order(made->back_by_query);
  by_key_ = send_order(made->by_key);
  by_query_ = made->bf16 ? send_order(made->by_query) : back_by_query_;
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
  if (last.lists && last.tiles.lock() == tiles && last.bf16 == bf16 && last.device == device)
    return last.lists;
  const auto& made = tiles->gpu_lists();
  last = {tiles, bf16, device,
          made && made->bf16 == bf16
              ? std::make_shared<const TileLists>(made, device)
              : std::make_shared<const TileLists>(tiles->mask(), bf16, device)};
  return last.lists;
}

void TileLists::describe(Attention& attention) const {
  const auto list = [](const BlockOrder<at::Tensor>& lists) {
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
