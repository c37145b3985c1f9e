#include "scheduler/iteration/rank_grid.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using testing::draw;
using Groups = std::vector<Ranks>;

RankGrid grid(std::vector<GridAxis> axes, std::int32_t first = 0) {
  auto made = RankGrid::create(std::move(axes), first);
  REQUIRE(made.ok());
  return std::move(made).value();
}

/// The order of the world of 24 ranks: tp fastest, then dp, then pp.
RankGrid tp_dp_pp(std::int32_t tp, std::int32_t dp, std::int32_t pp, std::int32_t first) {
  return grid({{"tp", tp}, {"dp", dp}, {"pp", pp}}, first);
}

TEST_CASE("groups of grids are the published ones", "[scheduler]") {
  CHECK(grid({{"tp", 2}, {"dp", 4}}).groups("tp") == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(grid({{"tp", 2}, {"dp", 2}}, 4).groups("tp") == Groups{{4, 5}, {6, 7}});
  const auto cube = grid({{"tp", 2}, {"cp", 2}, {"dp", 2}});
  CHECK(cube.groups("dp") == Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(cube.groups("pp").size() == 8);
}

TEST_CASE("modules send from their last stage and receive at their first", "[scheduler]") {
  // Eight ranks, tp fastest, then cp, pp, dp: (2,1,2,2), then (4,1,2,1).
  const auto two = grid({{"tp", 2}, {"cp", 1}, {"pp", 2}, {"dp", 2}});
  CHECK(Groups{two.stage(1, 0), two.stage(1, 1)} == Groups{{2, 3}, {6, 7}});
  CHECK(Groups{two.stage(0, 0), two.stage(0, 1)} == Groups{{0, 1}, {4, 5}});
  const auto four = grid({{"tp", 4}, {"cp", 1}, {"pp", 2}, {"dp", 1}});
  CHECK(four.stage(1, 0) == Ranks{4, 5, 6, 7});
  CHECK(four.stage(0, 0) == Ranks{0, 1, 2, 3});
}

TEST_CASE("neighbours in a world of 24 ranks are the published ones", "[scheduler]") {
  // Encoder: 2 stages of tp 2, dp 2, ranks 0-7. LLM: 2 stages of tp 4, dp 2, ranks 8-23.
  const std::vector<ModuleGrid> modules{{tp_dp_pp(2, 2, 2, 0), {1}}, {tp_dp_pp(4, 2, 2, 8), {}}};
  CHECK(neighbours(modules, 0) == Neighbours{{}, {4}});
  CHECK(neighbours(modules, 4) == Neighbours{{0}, {8, 9}});
  CHECK(neighbours(modules, 8) == Neighbours{{4}, {16}});
  CHECK(neighbours(modules, 6) == Neighbours{{2}, {12, 13}});  // The second replica.
  CHECK(neighbours(modules, 23) == Neighbours{{15}, {}});
  CHECK(neighbours(modules, 24) == Neighbours{});
}

TEST_CASE("a wide encoder hands over to a narrow llm", "[scheduler]") {
  // tp 3 to tp 2: thirds [0,1/3) [1/3,2/3) [2/3,1) against halves.
  const std::vector<ModuleGrid> modules{{tp_dp_pp(3, 1, 1, 0), {1}}, {tp_dp_pp(2, 1, 1, 3), {}}};
  CHECK(neighbours(modules, 0).next == Ranks{3});
  CHECK(neighbours(modules, 1).next == Ranks{3, 4});
  CHECK(neighbours(modules, 4).previous == Ranks{1, 2});
}

TEST_CASE("modules on shared ranks are no neighbours of themselves", "[scheduler]") {
  const std::vector<ModuleGrid> same{{tp_dp_pp(2, 1, 1, 0), {1}}, {tp_dp_pp(2, 1, 1, 0), {}}};
  CHECK(neighbours(same, 0) == Neighbours{});
  // Encoder tp 1 dp 2, llm tp 2 dp 1 on the same two ranks: each needs the other's rows.
  const std::vector<ModuleGrid> turned{{tp_dp_pp(1, 2, 1, 0), {1}}, {tp_dp_pp(2, 1, 1, 0), {}}};
  CHECK(neighbours(turned, 0) == Neighbours{{1}, {1}});
}

TEST_CASE("grids that cannot be are refused", "[scheduler][errors]") {
  CHECK(RankGrid::create({{"tp", 0}}).error().where == "tp");
  CHECK(RankGrid::create({{"tp", 2}, {"tp", 2}}).error().where == "tp");
  CHECK(RankGrid::create({{"tp", 2}}, -1).error().where == "first_rank");
  CHECK(RankGrid::create({{"tp", 1 << 20}, {"dp", 1 << 20}}).error().where == "dp");
}

/// Who hands to whom agrees from both sides, nobody at a boundary is left out, and each replica of
/// one side meets each share of its rows.
void check_boundary(const std::vector<ModuleGrid>& modules, std::int32_t ranks) {
  for (std::int32_t a = 0; a < ranks; ++a) {
    const auto own = neighbours(modules, a);
    for (const auto b : own.next) {
      const auto back = neighbours(modules, b).previous;
      REQUIRE(std::find(back.begin(), back.end(), a) != back.end());
    }
    const auto& from = modules[0].grid;
    const auto& to = modules[1].grid;
    if (from.contains(a)) REQUIRE_FALSE(own.next.empty());
    if (to.contains(a)) REQUIRE_FALSE(own.previous.empty());
  }
}

TEST_CASE("the published layouts and any sizes join without gaps", "[scheduler][property]") {
  // (tp, pp, dp) of the llm, then of the vision encoder.
  const int published[][6] = {{4, 1, 1, 4, 1, 1}, {2, 1, 2, 2, 1, 2}, {2, 2, 1, 4, 1, 1},
                              {1, 1, 4, 1, 1, 4}, {1, 4, 1, 4, 1, 1}, {1, 4, 1, 1, 1, 4},
                              {1, 2, 2, 2, 1, 2}, {4, 1, 1, 1, 1, 4}, {2, 2, 1, 2, 1, 2},
                              {2, 1, 2, 1, 1, 4}};
  for (const auto& p : published)
    check_boundary({{tp_dp_pp(p[3], p[5], p[4], 0), {1}}, {tp_dp_pp(p[0], p[2], p[1], 4), {}}}, 8);
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto from =
        tp_dp_pp(draw(random, 1, 4), draw(random, 1, 4), draw(random, 1, 3), draw(random, 0, 2));
    const auto to = tp_dp_pp(draw(random, 1, 4), draw(random, 1, 4), draw(random, 1, 3), 50);
    CAPTURE(seed);
    check_boundary({{from, {1}}, {to, {}}}, 100);
    for (const char* axis : {"tp", "dp", "pp"}) {
      Ranks all;
      for (const auto& group : from.groups(axis)) {
        REQUIRE(static_cast<std::int32_t>(group.size()) == from.size(axis));
        for (std::size_t i = 0; i < group.size(); ++i)
          REQUIRE(from.coordinate(group[i], axis) == static_cast<std::int32_t>(i));
        all.insert(all.end(), group.begin(), group.end());
      }
      std::sort(all.begin(), all.end());
      REQUIRE(std::adjacent_find(all.begin(), all.end()) == all.end());
      REQUIRE(static_cast<std::int32_t>(all.size()) == from.rank_count());
    }
  }
}

}  // namespace
}  // namespace troupe::scheduler
