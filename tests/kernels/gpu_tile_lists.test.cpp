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

gpu::Attention described(const gpu::TileLists& lists) {
  gpu::Attention attention{};
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

// How often each pair is computed: [query, key].
std::vector<int> pairs_of(const gpu::TileList& list, const gpu::MaskRows& mask, std::int64_t rows,
                          std::int64_t block, std::int64_t other, bool by_query) {
  std::vector<int> times(static_cast<std::size_t>(rows * rows));
  for (std::int64_t i = 0; i < list.blocks; ++i) {
    const auto first = list.order[i];
    for (auto at = list.begin[first]; at < list.begin[first + 1]; ++at)
      for (auto one = first * block; one < std::min((first + 1) * block, rows); ++one)
        for (auto two = list.entries[at].other * other;
             two < std::min((list.entries[at].other + 1) * other, rows); ++two) {
          const auto query = by_query ? one : two, key = by_query ? two : one;
          times[static_cast<std::size_t>(query * rows + key)] +=
              computed(mask, query, key, list.entries[at].test) ? 1 : 0;
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
    for (std::int64_t i = 0; i < list->blocks; ++i) {
      const auto block = list->order[i];
      const auto tiles = list->begin[block + 1] - list->begin[block];
      CHECK(tiles <= before);
      before = tiles;
      blocks.insert(block);
    }
    CHECK(std::ssize(blocks) == list->blocks);
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
  CHECK(described(*of(other, true)).by_query.blocks == 1);
  CHECK(described(*of(one, true)).by_query.blocks == 3);
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
    return described(*found).by_key.order == made->gpu_lists()->by_key.order.data();
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
