#include "kernels/gpu_tile_lists.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <vector>

#include "engine/state/memory_count.hpp"
#include "kernels/bitfield_attention.hpp"
#include "tests/kernels/random_mask.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe;
using namespace troupe::kernels;

namespace {

gpu::Attention described(const gpu::TileLists& lists, std::int64_t heads = 0,
                         std::int64_t kv_heads = 0, std::int64_t places = 0) {
  gpu::Attention attention{};
  attention.heads = heads;
  attention.kv_heads = kv_heads;
  attention.places = {places, places, places};
  lists.describe(attention);
  return attention;
}

// What the kernels compute of a pair of blocks, from the lists and rows alone.
bool computed(const gpu::MaskRows& rows, std::int64_t query, std::int64_t key, std::int32_t test) {
  if (test == 0) return true;
  if (key < rows.ranges[2 * query] || key >= rows.ranges[2 * query + 1]) return false;
  const auto common = static_cast<std::uint64_t>(rows.words[query] & rows.words[key]);
  return test == 1 || (common & ~kCausalBit) != 0;
}

// How often each pair is computed, of one head of a group: [query, key].
std::vector<int> pairs_of(const gpu::TileList& list, const gpu::MaskRows& mask, std::int64_t rows,
                          std::int64_t block, std::int64_t other, bool by_query,
                          std::int32_t head = 0) {
  std::vector<int> times(static_cast<std::size_t>(rows * rows));
  for (std::int64_t i = 0; i < list.part_count; ++i) {
    const auto& part = list.parts[i];
    const auto first = part.block, begin = list.begin[first];
    const auto count = list.begin[first + 1] - begin;
    for (auto turn = part.from; turn < part.to; ++turn) {
      if (turn / count != head) continue;
      const auto& entry = list.entries[begin + turn % count];
      for (auto one = first * block; one < std::min((first + 1) * block, rows); ++one)
        for (auto two = entry.other * other; two < std::min((entry.other + 1) * other, rows);
             ++two) {
          const auto query = by_query ? one : two, key = by_query ? two : one;
          times[static_cast<std::size_t>(query * rows + key)] +=
              computed(mask, query, key, entry.test) ? 1 : 0;
        }
    }
  }
  return times;
}

std::vector<int> seen_pairs_of(const TokenMask& mask) {
  std::vector<int> times;
  for (TokenCount query = 0; query < mask.size(); ++query)
    for (TokenCount key = 0; key < mask.size(); ++key) times.push_back(mask.sees(query, key));
  return times;
}

}  // namespace

TEST_CASE("work lists of a GPU hold each pair that is seen once", "[kernels][property]") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto mask = random_mask(random, 400);
    const auto wanted = seen_pairs_of(mask);
    for (const bool bf16 : {true, false}) {
      const gpu::TileLists lists(mask, bf16, at::kCPU);
      const auto found = described(lists);
      const auto back = bf16 ? gpu::kBackTile : gpu::kPlainTile;
      const auto pairs = [&](const gpu::TileList& list, std::int64_t block, std::int64_t other,
                             bool by_query) {
        return pairs_of(list, found.mask, mask.size(), block, other, by_query);
      };
      CHECK(pairs(found.by_query, bf16 ? gpu::kQueryBlock : back, bf16 ? gpu::kKeyTile : back,
                  true) == wanted);
      CHECK(pairs(found.back_by_query, back, back, true) == wanted);
      CHECK(pairs(found.by_key, back, back, false) == wanted);
    }
  }
}

TEST_CASE("a GPU begins with the blocks that have most to do", "[kernels]") {
  const auto mask = TokenMask::from_samples(std::vector<TokenSample>{{900, {}}, {200, {}}}).value();
  const gpu::TileLists lists(mask, true, at::kCPU);
  const auto attention = described(lists);
  for (const auto* list : {&attention.by_query, &attention.back_by_query, &attention.by_key}) {
    std::set<std::int32_t> blocks;
    auto before = std::numeric_limits<std::int32_t>::max();
    for (std::int64_t i = 0; i < list->part_count; ++i) {
      const auto& part = list->parts[i];
      const auto tiles = list->begin[part.block + 1] - list->begin[part.block];
      CHECK((part == gpu::SubBlock{part.block, 0, tiles, -1}));
      CHECK(tiles <= before);
      before = tiles;
      blocks.insert(part.block);
    }
    CHECK(std::ssize(blocks) == list->part_count);
  }
}

TEST_CASE("layers share the lists of their microbatch, and no others", "[kernels]") {
  const auto tiles = [](TokenCount tokens) {
    return std::make_shared<const MaskTiles>(
        TokenMask::from_samples(std::vector<TokenSample>{{tokens, {}}}).value(), kAttentionTiles);
  };
  const auto one = tiles(300), other = tiles(40);
  const auto of = [](const std::shared_ptr<const MaskTiles>& mask, bool bf16) {
    return gpu::TileLists::of(mask, bf16, at::kCPU);
  };
  const auto first = of(one, true);
  CHECK(of(one, true) == first);
  CHECK(of(one, false) != first);
  CHECK(described(*of(other, true)).by_query.part_count == 1);
  CHECK(described(*of(one, true)).by_query.part_count == 3);
}

TEST_CASE("lists of a GPU are cut for heads and places, and hold each pair once for each head",
          "[kernels][property]") {
  std::vector<TokenMask> masks{
      TokenMask::from_samples(std::vector<TokenSample>{{700, {}}, {90, {{10, 80}}}}).value()};
  for (unsigned seed = 0; seed < 15; ++seed) {
    Random random(seed);
    masks.push_back(random_mask(random, 400));
  }
  for (const auto& mask : masks)
    for (const bool bf16 : {true, false}) {
      CAPTURE(mask.size(), bf16);
      const gpu::TileLists lists(mask, bf16, at::kCPU);
      const auto found = described(lists, 4, 2, 4096);
      const auto wanted = seen_pairs_of(mask);
      const auto back = bf16 ? gpu::kBackTile : gpu::kPlainTile;
      const auto pairs = [&](const gpu::TileList& list, std::int64_t block, std::int64_t other,
                             bool by_query, std::int32_t head) {
        return pairs_of(list, found.mask, mask.size(), block, other, by_query, head);
      };
      CHECK(pairs(found.by_query, bf16 ? gpu::kQueryBlock : back, bf16 ? gpu::kKeyTile : back, true,
                  0) == wanted);
      CHECK(pairs(found.back_by_query, back, back, true, 0) == wanted);
      CHECK(pairs(found.by_key, back, back, false, 0) == wanted);
      CHECK(pairs(found.by_key, back, back, false, 1) == wanted);
      if (mask.size() != 790) continue;
      // A block of 11 turns or more is done sooner in parts where there is a place for each.
      for (const auto* list : {&found.by_query, &found.back_by_query, &found.by_key}) {
        CHECK(list->split_count > 0);
        CHECK(list->slots >= 2 * list->split_count);
      }
    }
}

TEST_CASE("partial results have room for each head's slots", "[kernels]") {
  // Forward: 5 slots of 4 heads, 128 rows of 64 sums and 8 columns of totals. Backward: by key 3
  // slots of 2 heads with two gradients, by query 2 slots of 4 heads; 64 rows of 64. The plain
  // kernels have 32 rows everywhere.
  gpu::Attention attention{};
  attention.heads = 4;
  attention.kv_heads = 2;
  attention.dim = 64;
  CHECK(gpu::forward_room(attention, true) == 0);
  CHECK(gpu::backward_room(attention, true) == 0);
  attention.by_query.slots = 5;
  attention.by_key.slots = 3;
  attention.back_by_query.slots = 2;
  CHECK(gpu::forward_room(attention, true) == 5 * 4 * 128 * (64 + 8));
  CHECK(gpu::forward_room(attention, false) == 5 * 4 * 32 * (64 + 8));
  CHECK(gpu::backward_room(attention, true) == 3 * 2 * 2 * 64 * 64);
  attention.by_key.slots = 1;
  CHECK(gpu::backward_room(attention, false) == 2 * 4 * 32 * 64);
}

TEST_CASE("lists are cut once for the same heads and places", "[kernels]") {
  const auto mask = TokenMask::from_samples(std::vector<TokenSample>{{900, {}}}).value();
  const gpu::TileLists lists(mask, true, at::kCPU);
  const auto parts = [&](std::int64_t heads, std::int64_t places) {
    return described(lists, heads, 1, places).by_query.parts;
  };
  const auto* first = parts(2, 4096);
  CHECK(parts(2, 4096) == first);
  CHECK(parts(1, 4096) != first);
  CHECK(parts(2, 64) != first);
  CHECK(parts(2, 4096) == first);
}

TEST_CASE("lists that were made with their tiles are not made again", "[kernels]") {
  const auto samples = std::vector<TokenSample>{{300, {{20, 90}}}};
  const auto tiles = [&](GpuLists lists) {
    return std::make_shared<const MaskTiles>(TokenMask::from_samples(samples).value(),
                                             kAttentionTiles, lists);
  };
  const auto made = tiles(GpuLists::bf16), plain = tiles(GpuLists::none);
  CHECK(plain->gpu_lists() == nullptr);
  REQUIRE(made->gpu_lists() != nullptr);
  CHECK(made->gpu_lists()->bf16);
  CHECK_FALSE(tiles(GpuLists::plain)->gpu_lists()->bf16);
  // On a host nothing is copied: what is not made again lies where it was made.
  const auto lie_as_made = [&](bool bf16) {
    const auto found = gpu::TileLists::of(made, bf16, at::kCPU);
    return described(*found).by_key.begin == made->gpu_lists()->by_key.begin.data();
  };
  CHECK(lie_as_made(true));
  CHECK_FALSE(lie_as_made(false));  // Of another kind.
  const auto own = gpu::TileLists::of(plain, true, at::kCPU);
  const auto first = described(*own);
  const auto second = described(*gpu::TileLists::of(made, true, at::kCPU));
  const auto mask = made->mask();
  CHECK(pairs_of(first.by_query, first.mask, mask.size(), gpu::kQueryBlock, gpu::kKeyTile, true) ==
        pairs_of(second.by_query, second.mask, mask.size(), gpu::kQueryBlock, gpu::kKeyTile, true));
}

TEST_CASE("lists in host memory are none of LibTorch's memory", "[kernels]") {
  // A thread makes them, and a forward that counts what it takes lets go of them on another one.
  const auto samples = std::vector<TokenSample>{{300, {{20, 90}}}};
  const auto mask = TokenMask::from_samples(samples).value();
  for (const bool bf16 : {true, false}) {
    const engine::CountMemory count;
    const gpu::HostLists lists(mask, bf16);
    CHECK(count.bytes() == 0);
    CHECK(std::ssize(lists.ranges) == 2 * mask.size());
    const gpu::TileLists read(std::make_shared<const gpu::HostLists>(mask, bf16), at::kCPU);
    CHECK(described(read, 4, 2, 4096).by_key.part_count > 0);
    CHECK(count.bytes() == 0);  // Nor what is cut of them.
    const auto counted = at::empty({8}, at::kInt);
    CHECK(count.bytes() >= 32);  // Else this test shows nothing.
  }
}

TEST_CASE("lists that a host reads in place live as long as whoever reads them", "[kernels]") {
  const auto samples = std::vector<TokenSample>{{300, {{20, 90}}}};
  const auto mask = TokenMask::from_samples(samples).value();
  auto made = std::make_shared<const gpu::HostLists>(mask, true);
  const std::weak_ptr<const gpu::HostLists> seen = made;
  auto lists = std::make_unique<const gpu::TileLists>(made, at::kCPU);
  made.reset();
  CHECK_FALSE(seen.expired());
  lists.reset();
  CHECK(seen.expired());
}
