#include "kernels/gpu_tile_lists.hpp"

#include <ATen/ops/from_blob.h>

#include <atomic>
#include <iterator>
#include <utility>
#include <vector>

#include "kernels/device_copies.hpp"

namespace troupe::kernels::gpu {

namespace {

static_assert(sizeof(TileEntry) == 2 * sizeof(std::int32_t));
static_assert(sizeof(SubBlock) == 4 * sizeof(std::int32_t));
static_assert(sizeof(SplitBlock) == 3 * sizeof(std::int32_t));

std::atomic<std::int64_t> lists_made{0};

std::int32_t narrow(std::size_t value) { return static_cast<std::int32_t>(value); }

// What `owner` holds, as a tensor of plain numbers. A host reads them in place, so `owner` lives as
// long as that tensor; a copy to a GPU begins from memory of its own (device_copies.hpp).
template <class Value>
at::Tensor send(const std::shared_ptr<const void>& owner, const std::vector<Value>& values,
                at::ScalarType type, at::Device device) {
  const auto bytes = std::ssize(values) * static_cast<std::int64_t>(sizeof(Value));
  auto* from = const_cast<void*>(static_cast<const void*>(values.data()));  // Only read.
  const auto count = bytes / static_cast<std::int64_t>(c10::elementSize(type));
  return to_device(at::from_blob(
                       from, {count}, [owner](void*) {}, type),
                   device);
}

}  // namespace

std::int64_t HostLists::made_count() { return lists_made; }

HostLists::HostLists(const TokenMask& mask, bool for_bf16) : bf16(for_bf16) {
  ++lists_made;
  const auto lists = [&](std::int64_t blocks, auto list_of, bool by_query) {
    std::vector<std::int32_t> begin{0}, entries, lengths;
    for (std::int64_t block = 0; block < blocks; ++block) {
      for (const MaskTile& tile : list_of(block)) {
        entries.push_back(by_query ? tile.tile : tile.block);
        entries.push_back(static_cast<std::int32_t>(tile.test));
      }
      begin.push_back(narrow(entries.size() / 2));
      lengths.push_back(begin.back() - begin.end()[-2]);
    }
    return Entries{std::move(begin), std::move(entries), std::move(lengths)};
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

TileLists::TileLists(const std::shared_ptr<const HostLists>& made, at::Device device)
    : device_(device),
      ranges_(send(made, made->ranges, at::kInt, device)),
      words_(send(made, made->words, at::kLong, device)) {
  const auto send_entries = [&](const HostLists::Entries& lists) {
    return Entries{send(made, lists.begin, at::kInt, device),
                   send(made, lists.entries, at::kInt, device), lists.lengths};
  };
  back_by_query_ = send_entries(made->back_by_query);
  by_key_ = send_entries(made->by_key);
  by_query_ = made->bf16 ? send_entries(made->by_query) : back_by_query_;
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

TileLists::Cut TileLists::cut(const Entries& lists, std::int64_t turns_per_entry,
                              const Spread& spread) const {
  auto turns = lists.lengths;
  for (auto& count : turns) count *= static_cast<std::int32_t>(turns_per_entry);
  const auto found = std::make_shared<const SubBlocks>(balance_blocks(turns, spread));
  return {send(found, found->parts, at::kInt, device_),
          send(found, found->splits, at::kInt, device_), found->slots};
}

const TileLists::Cuts& TileLists::cuts_for(const Attention& attention) const {
  const auto heads = attention.heads, kv_heads = attention.kv_heads;
  const auto& places = attention.places;
  const Numbers numbers{heads, kv_heads, places.forward, places.back_by_query, places.by_key};
  const std::lock_guard lock(mutex_);
  if (const auto found = cuts_.find(numbers); found != cuts_.end()) return found->second;
  const auto group = kv_heads > 0 ? heads / kv_heads : 1;
  Cuts cuts{cut(by_query_, 1, {heads, places.forward}),
            cut(back_by_query_, 1, {heads, places.back_by_query}),
            cut(by_key_, group, {kv_heads, places.by_key})};
  return cuts_.emplace(numbers, std::move(cuts)).first->second;
}

void TileLists::describe(Attention& attention) const {
  const auto list = [](const Entries& lists, const Cut& cut) {
    return TileList{.begin = lists.begin.const_data_ptr<std::int32_t>(),
                    .entries = static_cast<const TileEntry*>(lists.entries.const_data_ptr()),
                    .parts = static_cast<const SubBlock*>(cut.parts.const_data_ptr()),
                    .splits = static_cast<const SplitBlock*>(cut.splits.const_data_ptr()),
                    .part_count = cut.parts.numel() / 4,
                    .split_count = cut.splits.numel() / 3,
                    .slots = cut.slots};
  };
  const auto& cuts = cuts_for(attention);
  attention.by_query = list(by_query_, cuts.by_query);
  attention.back_by_query = list(back_by_query_, cuts.back_by_query);
  attention.by_key = list(by_key_, cuts.by_key);
  attention.mask = {ranges_.const_data_ptr<std::int32_t>(), words_.const_data_ptr<std::int64_t>()};
}

}  // namespace troupe::kernels::gpu
