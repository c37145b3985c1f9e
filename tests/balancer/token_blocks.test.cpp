#include "balancer/tokens/token_blocks.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <numeric>
#include <set>

#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {
namespace {

using Loads = std::vector<std::int64_t>;
using Owners = std::vector<std::int32_t>;

std::vector<TokenSample> random_samples(Random& random) {
  std::vector<TokenSample> samples(random.below(6));
  for (auto& sample : samples) {
    sample.tokens = static_cast<TokenCount>(random.below(60));
    for (TokenCount at = 0; at < sample.tokens;) {
      const auto begin = at + static_cast<TokenCount>(random.below(10));
      const auto end = begin + 1 + static_cast<TokenCount>(random.below(12));
      if (end > sample.tokens) break;
      sample.spans.push_back({begin, end});
      at = end;
    }
  }
  return samples;
}

// The mask row by row, and the tiles of it that a block touches.
Loads brute_force_loads(const std::vector<TokenSample>& samples, BlockShape shape) {
  std::vector<std::pair<TokenCount, TokenCount>> sees;
  TokenCount start = 0;
  for (const auto& sample : samples) {
    for (TokenCount row = 0; row < sample.tokens; ++row) {
      auto range = std::pair{start, start + row + 1};
      for (const auto& span : sample.spans)
        if (row >= span.begin && row < span.end) range = {start + span.begin, start + span.end};
      sees.push_back(range);
    }
    start += sample.tokens;
  }
  Loads loads;
  for (std::size_t begin = 0; begin < sees.size(); begin += static_cast<std::size_t>(shape.block)) {
    std::set<TokenCount> tiles;
    for (std::size_t row = begin;
         row < std::min(sees.size(), begin + static_cast<std::size_t>(shape.block)); ++row)
      for (TokenCount column = sees[row].first; column < sees[row].second; ++column)
        tiles.insert(column / shape.tile);
    loads.push_back(static_cast<std::int64_t>(tiles.size()));
  }
  return loads;
}

TEST_CASE("causal blocks of 684 tokens go to four devices as published", "[balancer]") {
  // Tiles per block: 4, 8, 12, 16, 20 and 22 (684 keys are 21.4 tiles). Heaviest first: block 5 to
  // device 0, 4 to 1, 3 to 2, 2 to 3; then 1 to device 3 (12), 0 to device 2 (16).
  const std::vector<TokenSample> samples{{684, {}}};
  CHECK(block_loads(samples, {}).value() == Loads{4, 8, 12, 16, 20, 22});
  TokenBlockOptions options;
  options.device_count = 4;
  const auto blocks = assign_token_blocks(samples, options).value();
  CHECK(blocks.owner == Owners{2, 3, 3, 2, 1, 0});
  CHECK(blocks.loads == Loads{22, 20, 20, 20});
}

TEST_CASE("causal blocks of 2003 tokens balance within one tile", "[balancer]") {
  TokenBlockOptions options;
  options.device_count = 4;
  const auto blocks = assign_token_blocks(std::vector<TokenSample>{{2003, {}}}, options).value();
  CHECK(blocks.loads == Loads{135, 136, 136, 136});
  // Counted from the last block the owners read 0,1,2,3,3,2,1,0,0,1,...
  const Owners from_last(blocks.owner.rbegin(), blocks.owner.rbegin() + 10);
  CHECK(from_last == Owners{0, 1, 2, 3, 3, 2, 1, 0, 0, 1});
}

TEST_CASE("packed samples' blocks go the longest first, not by place", "[balancer]") {
  // Blocks of one token: 4 and 2 tokens that see no other sample have loads 1, 2, 3, 4, 1, 2.
  // Longest first, equal ones from behind: 4 (block 3) -> 0; 3 (2) -> 1; 2 (5) -> 1, as 3 < 4; 2
  // (1) -> 0; 1 (4) -> 1, as 5 < 6; 1 (0) -> 0, as both have 6.
  TokenBlockOptions options;
  options.device_count = 2;
  options.shape = {.block = 1, .tile = 1};
  const auto blocks =
      assign_token_blocks(std::vector<TokenSample>{{4, {}}, {2, {}}}, options).value();
  CHECK(blocks.owner == Owners{0, 0, 1, 0, 1, 1});
  CHECK(blocks.loads == Loads{7, 6});
}

TEST_CASE("too few tokens stay on device 0", "[balancer]") {
  TokenBlockOptions options;
  options.device_count = 4;
  const auto blocks = assign_token_blocks(std::vector<TokenSample>{{511, {}}}, options).value();
  CHECK(blocks.owner == Owners(4, 0));
  CHECK(assign_token_blocks({}, options).value().loads == Loads(4, 0));
  // 512 tokens are one block each: heaviest first, so the last block to device 0.
  const auto split = assign_token_blocks(std::vector<TokenSample>{{512, {}}}, options).value();
  CHECK(split.owner == Owners{3, 2, 1, 0});
}

TEST_CASE("full masks are dealt round robin", "[balancer]") {
  TokenBlockOptions options;
  options.device_count = 3;
  const std::vector<TokenSample> full{{128 * 9, {{0, 128 * 9}}}};
  const auto lpt = assign_token_blocks(full, options).value();
  CHECK(lpt.loads == Loads(3, 3 * 36));
  CHECK(lpt.owner == Owners{2, 1, 0, 2, 1, 0, 2, 1, 0});
  options.method = TokenBlockMethod::round_robin;
  CHECK(assign_token_blocks(full, options).value().owner == Owners{0, 1, 2, 0, 1, 2, 0, 1, 2});
}

TEST_CASE("zigzag gives each device a run from either end", "[balancer]") {
  TokenBlockOptions options;
  options.device_count = 2;
  options.method = TokenBlockMethod::zigzag;
  const auto blocks = assign_token_blocks(std::vector<TokenSample>{{128 * 8, {}}}, options).value();
  CHECK(blocks.owner == Owners{0, 0, 1, 1, 1, 1, 0, 0});
  CHECK(blocks.loads == Loads{4 + 8 + 28 + 32, 12 + 16 + 20 + 24});
}

TEST_CASE("loads are those of the mask, tile by tile", "[balancer][property]") {
  Random random(GENERATE(range(0u, 1000u)));
  const auto samples = random_samples(random);
  const BlockShape shape{1 + static_cast<TokenCount>(random.below(16)),
                         1 + static_cast<TokenCount>(random.below(9))};
  CHECK(block_loads(samples, shape).value() == brute_force_loads(samples, shape));
}

TEST_CASE("the integer program is never behind longest first", "[balancer][property]") {
  Random random(GENERATE(range(0u, 15u)));
  const auto samples = random_samples(random);
  TokenBlockOptions options{{8, 4}, 3, TokenBlockMethod::lpt, 100};
  const auto lpt = assign_token_blocks(samples, options).value();
  options.method = TokenBlockMethod::ilp;
  const auto ilp = assign_token_blocks(samples, options).value();
  const auto largest = [](const Loads& loads) {
    return *std::max_element(loads.begin(), loads.end());
  };
  CHECK(largest(ilp.loads) <= largest(lpt.loads));
  CHECK(std::accumulate(ilp.loads.begin(), ilp.loads.end(), std::int64_t{0}) ==
        std::accumulate(lpt.loads.begin(), lpt.loads.end(), std::int64_t{0}));
  CHECK(3 * largest(lpt.loads) <= 4 * largest(ilp.loads));
}

TEST_CASE("bad samples, shapes and names are refused", "[balancer][errors]") {
  const auto bad = [](const TokenSample& sample) {
    const auto loads = block_loads(std::vector<TokenSample>{{1, {}}, sample}, {});
    return !loads.ok() && loads.error().where == "sample 1";
  };
  CHECK(bad({-1, {}}));
  CHECK(bad({10, {{5, 11}}}));
  CHECK(bad({10, {{5, 5}}}));
  CHECK(bad({10, {{5, 7}, {6, 8}}}));
  CHECK(bad({TokenCount{1} << 41, {}}));
  CHECK_FALSE(block_loads({}, {0, 32}).ok());
  // More blocks than anyone has devices for would take all memory; larger blocks are fewer.
  const std::vector<TokenSample> huge{{TokenCount{1} << 39, {}}};
  const auto refused = block_loads(huge, {});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().where == "sample 0");
  CHECK_FALSE(refused.error().fix.empty());
  // Samples share blocks: these two fill as many as are allowed.
  const std::vector<TokenSample> most{{(TokenCount{1} << 30) - 1, {}}, {1, {}}};
  CHECK(block_loads(most, {}).value().size() == std::size_t{1} << 23);
  CHECK(block_loads(huge, {TokenCount{1} << 30, 32}).value().size() == 512);
  TokenBlockOptions options;
  options.device_count = 0;
  CHECK_FALSE(assign_token_blocks({}, options).ok());
  CHECK(token_block_method_from("zigzap").error().fix == "did you mean `zigzag`?");
}

}  // namespace
}  // namespace troupe::balancer
