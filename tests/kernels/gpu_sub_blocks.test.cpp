#include "kernels/gpu_sub_blocks.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/dense_attention.hpp"
#include "kernels/mask_tiles.hpp"
#include "tests/kernels/masked_heads.hpp"
#include "tests/kernels/sub_block_attention.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe;
using namespace troupe::kernels;
using gpu::SubBlock;
using gpu::SubBlocks;

namespace {

using Turns = std::vector<std::int32_t>;

constexpr auto kWhole = std::numeric_limits<std::int32_t>::max();

// "block:from-to", then "@slot" of a part.
std::string list(const SubBlocks& blocks) {
  std::string text;
  for (const auto& part : blocks.parts)
    text += (text.empty() ? "" : " ") + std::to_string(part.block) + ":" +
            std::to_string(part.from) + "-" + std::to_string(part.to) +
            (part.slot >= 0 ? "@" + std::to_string(part.slot) : "");
  return text;
}

// Some lists are short, some have one block that is much longer than the others.
Turns random_turns(Random& random) {
  Turns turns(1 + random.below(40));
  for (auto& count : turns) count = static_cast<std::int32_t>(random.below(60));
  if (random.below(2) == 0) turns[random.below(turns.size())] += 1000;
  return turns;
}

// Every turn of every block is in one part; slots of a block go up with its turns.
void check_parts(const SubBlocks& found, const Turns& turns) {
  auto parts = found.parts;
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return std::pair(a.block, a.from) < std::pair(b.block, b.from);
  });
  std::size_t at = 0;
  std::int32_t slots = 0;
  for (std::size_t block = 0; block < turns.size(); ++block) {
    std::int32_t reached = 0, count = 0;
    for (; at < parts.size() && parts[at].block == static_cast<std::int32_t>(block); ++at) {
      REQUIRE(parts[at].from == reached);
      reached = parts[at].to;
      if (parts[at].slot >= 0) REQUIRE(parts[at].slot == slots + count);
      ++count;
    }
    REQUIRE(reached == turns[block]);
    REQUIRE(count >= 1);
    const auto split = std::find_if(found.splits.begin(), found.splits.end(), [&](const auto& one) {
      return one.block == static_cast<std::int32_t>(block);
    });
    REQUIRE((split != found.splits.end()) == (count > 1));
    if (count == 1) continue;
    REQUIRE(split->slot == slots);
    REQUIRE(split->count == count);
    slots += count;
  }
  REQUIRE(at == parts.size());
  REQUIRE(found.slots == slots);
}

}  // namespace

TEST_CASE("a block is cut into the fewest parts that are short enough", "[kernels]") {
  // Of 5 turns, 2 at most: three parts, 0-1, 1-3 and 3-5. The longest come first; a block without
  // turns is there too, since its rows are written.
  const auto found = gpu::cut_blocks(Turns{5, 2, 0}, 2);
  CHECK(list(found) == "0:1-3@1 0:3-5@2 1:0-2 0:0-1@0 2:0-0");
  CHECK((found.splits == std::vector<gpu::SplitBlock>{{0, 0, 3}}));
  CHECK(found.slots == 3);
  CHECK(list(gpu::cut_blocks(Turns{5, 2, 0}, kWhole)) == "0:0-5 1:0-2 2:0-0");
}

TEST_CASE("free thread blocks take the next part", "[kernels]") {
  // Two places. Whole: 5 on one, 2 and 0 on the other. Cut: 2 + 3 on each, 2 on the first, 1 + 3 on
  // the second, 0 on the first; and the launch that adds up.
  CHECK(gpu::makespan(gpu::cut_blocks(Turns{5, 2, 0}, kWhole), {1, 2}) == 5);
  CHECK(gpu::makespan(gpu::cut_blocks(Turns{5, 2, 0}, 2), {1, 2}) == 9 + gpu::kMergeTurns);
  // Two heads: 5 and 5, 2 and 2.
  CHECK(gpu::makespan(gpu::cut_blocks(Turns{5, 2, 0}, kWhole), {2, 2}) == 7);
}

TEST_CASE("blocks are cut where that ends sooner", "[kernels]") {
  // A block of 100 turns alone on four places: parts of 25 take 28 turns and the launch 2. Eight
  // parts would take two rounds of 12 or 13 and 3 each.
  CHECK(list(gpu::balance_blocks(Turns{100}, {1, 4})) == "0:0-25@0 0:25-50@1 0:50-75@2 0:75-100@3");
  // Partial results would cost more than is won: 9 turns or more instead of 5.
  CHECK(gpu::balance_blocks(Turns{5, 2, 0}, {1, 2}).slots == 0);
  // Ten blocks of eight heads on eight places: ten whole blocks each, none is idle.
  CHECK(gpu::balance_blocks(Turns(10, 100), {8, 8}).slots == 0);
  CHECK(gpu::balance_blocks(Turns{100}, {1, 0}).slots == 0);
  CHECK(gpu::balance_blocks({}, {1, 4}).parts.empty());
  // Parts of 14 turns would be done after 32 and not 100, but are 72,000: more than a grid holds.
  CHECK(gpu::balance_blocks(Turns(9000, 100), {1, 65536}).slots == 0);
  CHECK(gpu::balance_blocks(Turns(8000, 100), {1, 65536}).slots == 64'000);
}

TEST_CASE("sub-blocks use the places that images leave idle", "[kernels]") {
  // Text of 160 tokens before each image of 576. Four heads on 264 places, 10.7 turns each in the
  // mean: the last text alone has 64.
  TokenSample sample{4096, {}};
  for (TokenCount at = 160; at + 576 <= 4096; at += 160 + 576)
    sample.spans.push_back({at, at + 576});
  const MaskTiles tiles(TokenMask::from_samples(std::vector{sample}).value(), {128, 64});
  Turns turns;
  for (std::int64_t block = 0; block < tiles.block_count(); ++block)
    turns.push_back(static_cast<std::int32_t>(tiles.of_block(block).size()));
  CHECK(gpu::makespan(gpu::cut_blocks(turns, kWhole), {4, 264}) == 64);
  CHECK(gpu::makespan(gpu::balance_blocks(turns, {4, 264}), {4, 264}) == 20);
}

TEST_CASE("cut blocks end no later than whole ones, and near the mean", "[kernels][property]") {
  bool any_cut = false;
  for (unsigned seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto turns = random_turns(random);
    const gpu::Spread spread{1 + static_cast<std::int64_t>(random.below(8)),
                             1 + static_cast<std::int64_t>(random.below(300))};
    const auto found = gpu::balance_blocks(turns, spread);
    check_parts(found, turns);
    any_cut = any_cut || found.slots > 0;
    const auto end = gpu::makespan(found, spread);
    const auto total = std::accumulate(turns.begin(), turns.end(), std::int64_t{0}) * spread.copies;
    const auto mean = static_cast<double>(total) / static_cast<double>(spread.places);
    CHECK(end <= gpu::makespan(gpu::cut_blocks(turns, kWhole), spread));
    CHECK(static_cast<double>(end) <= 1.25 * mean + 30);
    CHECK(found.slots * spread.copies <= 2 * gpu::kSharesMax * spread.places);
    CHECK(list(gpu::balance_blocks(turns, spread)) == list(found));
  }
  CHECK(any_cut);
}

TEST_CASE("parts of any length hold each turn once", "[kernels][property]") {
  for (unsigned seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto turns = random_turns(random);
    const auto most = 1 + static_cast<std::int32_t>(random.below(30));
    const auto found = gpu::cut_blocks(turns, most);
    check_parts(found, turns);
    CHECK(std::all_of(found.parts.begin(), found.parts.end(),
                      [&](const auto& part) { return part.to - part.from <= most; }));
    CHECK(std::is_sorted(found.parts.begin(), found.parts.end(), [](const auto& a, const auto& b) {
      return a.to - a.from > b.to - b.from;
    }));
  }
}

TEST_CASE("attention in sub-blocks is the reference", "[kernels][property]") {
  std::size_t cut = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto mask = random_mask(random, 50);
    const BlockShape shape{1 + static_cast<TokenCount>(random.below(12)),
                           1 + static_cast<TokenCount>(random.below(12))};
    const MaskTiles tiles(mask, shape);
    const auto kv_heads = 1 + static_cast<std::int64_t>(random.below(2));
    const Heads heads(mask.size(), kv_heads * (1 + static_cast<std::int64_t>(random.below(3))),
                      kv_heads, 4);
    const auto wanted = outcome_of(heads, [&](auto... x) { return dense_attention(x..., mask); });
    SubBlockAttention attention(tiles, heads, 1 + static_cast<std::int32_t>(random.below(3)));
    cut += attention.cut_count();
    CHECK(largest_difference(attention.run(values(wanted.out.sizes().vec(), 5)), wanted) < 1e-12);
  }
  CHECK(cut > 0);
}
