#include "kernels/mask_tiles.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "balancer/tokens/token_blocks.hpp"
#include "tests/kernels/random_mask.hpp"

namespace troupe::kernels {
namespace {

using Tiles = std::vector<MaskTile>;

// "block.tile", then "r" or "w" where ranges or words decide.
std::string list(std::span<const MaskTile> tiles) {
  std::string text;
  for (const auto& tile : tiles)
    text += (text.empty() ? "" : " ") + std::to_string(tile.block) + "." +
            std::to_string(tile.tile) +
            (tile.test == TileTest::none     ? ""
             : tile.test == TileTest::ranges ? "r"
                                             : "w");
  return text;
}

// Every pair of every tile.
Tiles brute_force(const TokenMask& mask, BlockShape shape) {
  Tiles tiles;
  for (TokenCount block = 0; block * shape.block < mask.size(); ++block)
    for (TokenCount tile = 0; tile * shape.tile < mask.size(); ++tile) {
      TokenCount seen = 0, in_range = 0, pairs = 0;
      for (TokenCount q = block * shape.block; q < (block + 1) * shape.block && q < mask.size();
           ++q)
        for (TokenCount k = tile * shape.tile; k < (tile + 1) * shape.tile; ++k) {
          ++pairs;
          if (k >= mask.size()) continue;
          seen += mask.sees(q, k);
          in_range += k >= mask.range(q).begin && k < mask.range(q).end;
        }
      if (seen == 0) continue;
      const auto test = seen == pairs      ? TileTest::none
                        : seen == in_range ? TileTest::ranges
                                           : TileTest::words;
      tiles.push_back({static_cast<std::int32_t>(block), static_cast<std::int32_t>(tile), test});
    }
  return tiles;
}

TEST_CASE("tiles of a causal mask with a span", "[kernels]") {
  // Text 0 to 3, a span 4 to 7, text 8 to 10; blocks of 4 queries, tiles of 2 keys. Block 0: a
  // triangle. Block 1: its span in full. Block 2: all before it in full, then a triangle of three.
  const std::vector<TokenSample> samples{{11, {{4, 8}}}};
  const MaskTiles tiles(TokenMask::from_samples(samples).value(), {4, 2});
  CHECK(tiles.block_count() == 3);
  CHECK(tiles.tile_count() == 6);
  CHECK(list(tiles.of_block(0)) == "0.0r 0.1r");
  CHECK(list(tiles.of_block(1)) == "1.2 1.3");
  CHECK(list(tiles.of_block(2)) == "2.0 2.1 2.2 2.3 2.4r 2.5r");
  CHECK(list(tiles.of_tile(1)) == "0.1r 2.1");
  CHECK(list(tiles.of_tile(5)) == "2.5r");
}

TEST_CASE("words empty tiles that ranges leave", "[kernels]") {
  // Two tokens of encoder 2, then text that sees encoder 4 and the llm alone, and all.
  const std::uint64_t some = kCausalBit | 4 | kTextBit, all = kCausalBit | 7;
  const std::vector<TokenCount> lengths{6};
  const auto mask = TokenMask::from_words({2, 2, some, some, all, all}, lengths).value();
  const MaskTiles tiles(mask, {2, 2});
  CHECK(list(tiles.of_block(1)) == "1.1r");
  CHECK(list(tiles.of_block(2)) == "2.0 2.1 2.2r");
  CHECK(list(MaskTiles(mask, {6, 2}).of_block(0)) == "0.0w 0.1r 0.2r");
}

TEST_CASE("tiles are those in which some query sees some key", "[kernels][property]") {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto mask = random_mask(random, 60);
    const BlockShape shape{1 + static_cast<TokenCount>(random.below(12)),
                           1 + static_cast<TokenCount>(random.below(12))};
    const MaskTiles tiles(mask, shape);
    Tiles by_block, by_tile;
    for (std::int64_t block = 0; block < tiles.block_count(); ++block)
      for (const auto& tile : tiles.of_block(block)) by_block.push_back(tile);
    for (std::int64_t tile = 0; tile < tiles.tile_count(); ++tile)
      for (const auto& entry : tiles.of_tile(tile)) by_tile.push_back(entry);
    auto expected = brute_force(mask, shape);
    // `words` where ranges would do costs time alone, and happens where text's words differ.
    for (std::size_t i = 0; i < by_block.size() && i < expected.size(); ++i)
      if (by_block[i].test == TileTest::words && expected[i].test == TileTest::ranges)
        expected[i].test = TileTest::words;
    REQUIRE(list(by_block) == list(expected));
    std::stable_sort(by_block.begin(), by_block.end(),
                     [](const auto& a, const auto& b) { return a.tile < b.tile; });
    REQUIRE(list(by_tile) == list(by_block));
  }
}

TEST_CASE("planners count the tiles that kernels compute", "[kernels][property]") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const auto samples = random_mask(random, 400).samples();
    const BlockShape shape{16, 8};
    const MaskTiles tiles(TokenMask::from_samples(samples).value(), shape);
    const auto loads = balancer::block_loads(samples, shape).value();
    REQUIRE(loads.size() == static_cast<std::size_t>(tiles.block_count()));
    for (std::int64_t block = 0; block < tiles.block_count(); ++block)
      REQUIRE(loads[static_cast<std::size_t>(block)] ==
              static_cast<std::int64_t>(tiles.of_block(block).size()));
  }
}

TEST_CASE("a mask of no tokens has no tiles", "[kernels]") {
  const MaskTiles tiles(TokenMask::from_words({}, {}).value(), {4, 4});
  CHECK(tiles.block_count() == 0);
  CHECK(tiles.tile_count() == 0);
}

}  // namespace
}  // namespace troupe::kernels
