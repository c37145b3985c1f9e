#include "scheduler/state/state_moves.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <random>
#include <set>
#include <string>

#include "scheduler/cost/state_bytes.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/state/copy_plan.hpp"
#include "scheduler/state/standby_holders.hpp"
#include "tests/scheduler/random_plans.hpp"
#include "tests/scheduler/random_states.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Matchers::ContainsSubstring;

DeviceSlot slot(std::int32_t node, std::int32_t device = 0) { return {NodeId{node}, device}; }

std::vector<ParameterInfo> two_matrices() {
  return {{"a", {4, 6}, {{ModuleId{0}, 0}}, true}, {"b", {8}, {{ModuleId{0}, 1}}, true}};
}

Shard value_of(std::int32_t parameter, Box box, std::vector<DeviceSlot> holders) {
  return {{ParameterId{parameter}, StateKind::value, std::move(box)}, std::move(holders)};
}

TEST_CASE("what a device has already stays where it is", "[scheduler]") {
  const StatePlacement have{value_of(0, whole_box({4, 6}), {slot(0), slot(1)})};
  const StatePlacement want{value_of(0, whole_box({4, 6}), {slot(1)})};
  CHECK(plan_state_moves(two_matrices(), Dtype::fp32, have, want).value().moves.empty());
}

TEST_CASE("the nearest source gives: itself, its node, another node", "[scheduler]") {
  const Box whole = whole_box({4, 6});
  const Box top{{0, 2}, {0, 6}};
  // Device (1, 1) has the rows that it wants in a larger box, and a neighbour has the whole.
  const StatePlacement own{value_of(0, top, {slot(1, 1)}), value_of(0, whole, {slot(0), slot(1)})};
  const StatePlacement upper{value_of(0, {{0, 1}, {0, 6}}, {slot(1, 1)})};
  auto moves = plan_state_moves(two_matrices(), Dtype::fp32, own, upper).value();
  REQUIRE(moves.moves.size() == 1);
  CHECK(moves.moves[0].from == slot(1, 1));

  const StatePlacement near{value_of(0, whole, {slot(0), slot(1)})};
  const StatePlacement beside{value_of(0, whole, {slot(1, 1)})};
  moves = plan_state_moves(two_matrices(), Dtype::fp32, near, beside).value();
  REQUIRE(moves.moves.size() == 1);
  CHECK(moves.moves[0].from == slot(1));
  CHECK(moves.sent_bytes == 0);

  const StatePlacement far{value_of(0, whole, {slot(2)})};
  moves = plan_state_moves(two_matrices(), Dtype::fp32, near, far).value();
  REQUIRE(moves.moves.size() == 1);
  CHECK(moves.sent_bytes == 4 * 24);
  CHECK(moves.max_sent_bytes == 4 * 24);
}

TEST_CASE("a node's devices share what its others read by bytes", "[scheduler]") {
  // Pieces of 8, 24, 8 and 8 elements; devices 0 and 1 have all, device 2 wants all. By number each
  // would send two, 32 and 16. By bytes: 24 from one, the others from the other.
  std::vector<ParameterInfo> parameters;
  StatePlacement have, want;
  for (const std::int64_t elements : {8, 24, 8, 8}) {
    const auto p = static_cast<std::int32_t>(parameters.size());
    parameters.push_back({"p" + std::to_string(p), {elements}, {{ModuleId{0}, 0}}, false});
    have.push_back(value_of(p, whole_box({elements}), {slot(0, 0), slot(0, 1)}));
    want.push_back(value_of(p, whole_box({elements}), {slot(0, 2)}));
  }
  const auto moves = plan_state_moves(parameters, Dtype::fp32, have, want).value();
  REQUIRE(moves.moves.size() == 4);
  for (const std::size_t other : {0, 2, 3})
    CHECK((moves.moves[other].from == slot(0, 0)) != (moves.moves[1].from == slot(0, 0)));
  CHECK(moves.sent_bytes == 0);
}

TEST_CASE("a box is put together from the pieces of others", "[scheduler]") {
  const StatePlacement have{value_of(0, {{0, 4}, {0, 3}}, {slot(0)}),
                            value_of(0, {{0, 4}, {3, 6}}, {slot(1)})};
  const StatePlacement want{value_of(0, {{1, 3}, {0, 6}}, {slot(2)})};
  const auto moves = plan_state_moves(two_matrices(), Dtype::fp32, have, want).value().moves;
  REQUIRE(moves.size() == 2);
  CHECK(moves[0].piece.box == Box{{1, 3}, {0, 3}});
  CHECK(moves[0].from == slot(0));
  CHECK(moves[1].piece.box == Box{{1, 3}, {3, 6}});
  CHECK(moves[1].from == slot(1));
}

TEST_CASE("state begins from the seed where nobody has any, and is never invented later",
          "[scheduler]") {
  const StatePlacement want{value_of(0, whole_box({4, 6}), {slot(0)}),
                            value_of(1, whole_box({8}), {slot(1)})};
  const auto moves = plan_state_moves(two_matrices(), Dtype::fp32, {}, want).value().moves;
  REQUIRE(moves.size() == 2);
  CHECK(moves[0].is_from_seed());
  CHECK(moves[1].is_from_seed());
  const StatePlacement half{value_of(0, {{0, 2}, {0, 6}}, {slot(0)})};
  const auto lost = plan_state_moves(two_matrices(), Dtype::fp32, half, want);
  REQUIRE_FALSE(lost.ok());
  CHECK(lost.error().code == Errc::infeasible);
  CHECK_THAT(lost.error().message, ContainsSubstring("a, b"));
  CHECK(total_moves(two_matrices(), Dtype::fp32, half, want).error().message ==
        lost.error().message);
  const auto totals = total_moves(two_matrices(), Dtype::fp32, {}, want).value();
  CHECK(totals.arriving ==
        std::map<DeviceSlot, Bytes>{{slot(0), Bytes{4 * 24}}, {slot(1), Bytes{4 * 8}}});
  CHECK(totals.least_busiest == Bytes{});
}

TEST_CASE("a layout wants what its stages use and train, a tied parameter once", "[scheduler]") {
  const auto model = testing::text_llm(4);
  const std::vector<ParameterInfo> parameters{
      {"tied", {4, 2}, {{ModuleId{0}, 0}, {ModuleId{0}, 3}}, true},
      {"inner", {2}, {{ModuleId{0}, 1}}, true},
      {"constant", {3}, {{ModuleId{0}, 2}}, false}};
  const auto plan =
      place_by_hand(model,
                    {{{{0, 0, {{"llm", LayerRange{0, 2}}}}, {1, 0, {{"llm", LayerRange{2, 4}}}}}}},
                    {2, 1})
          .value();
  const auto narrow = place_state(plan, parameters, Dtype::bf16);
  REQUIRE(narrow.size() == 7);
  CHECK(narrow[0] == value_of(0, whole_box({4, 2}), {slot(0), slot(1)}));
  CHECK(narrow[1].key.kind == StateKind::master);
  CHECK(narrow[2].key.kind == StateKind::moments);
  CHECK(narrow[3] == value_of(1, whole_box({2}), {slot(0)}));
  CHECK(narrow[6] == value_of(2, whole_box({3}), {slot(1)}));
  CHECK(place_state(plan, parameters, Dtype::fp32).size() == 5);
}

TEST_CASE("state lies with standby holders too, and a stage that moves to one brings no bytes",
          "[scheduler]") {
  // A layer with a vector of its own on each node; a matrix tied between them.
  auto model = testing::text_llm(2);
  model.tied.push_back({"tied", {{ModuleId{0}, 0}, {ModuleId{0}, 1}}, 24});
  const std::vector<ParameterInfo> parameters{
      {"a", {10}, {{ModuleId{0}, 0}}, true},
      {"tied", {4, 6}, {{ModuleId{0}, 0}, {ModuleId{0}, 1}}, true},
      {"b", {11}, {{ModuleId{0}, 1}}, true}};
  auto plan = place_by_hand(model, {}, {2, 1}).value();
  plan.devices.push_back({NodeId{2}, 0});
  const auto holders = [&](const StatePlacement& placement, std::int32_t parameter) {
    std::vector<DeviceSlot> common;
    for (const Shard& shard : placement) {
      if (shard.key.parameter != ParameterId{parameter}) continue;
      if (!common.empty()) CHECK(shard.holders == common);  // All kinds.
      common = shard.holders;
    }
    return common;
  };
  const auto safe = add_standbys(plan, {1, Dtype::bf16}).value();
  const auto placed = place_state(safe, parameters, Dtype::bf16);
  CHECK(placed.size() == 9);
  CHECK(holders(placed, 0) == std::vector{slot(0), slot(2)});
  CHECK(holders(placed, 1) == std::vector{slot(0), slot(1)});
  CHECK(holders(placed, 2) == std::vector{slot(1), slot(2)});
  const auto all =
      place_state(add_standbys(plan, {2, Dtype::bf16}).value(), parameters, Dtype::bf16);
  for (const std::int32_t parameter : {0, 1, 2})
    CHECK(holders(all, parameter) == std::vector{slot(0), slot(1), slot(2)});
  // Node 2 takes over all stages: everything is there already.
  auto later = place_by_hand(model, {{{{2, 0, {{"llm", {}}}}}}}, {3, 1}, IdleDevices::left_out);
  const auto want = place_state(later.value(), parameters, Dtype::bf16);
  CHECK(plan_state_moves(parameters, Dtype::bf16, all, want).value().moves.empty());
  // Without the tied parameter's standby holder that one comes, of it alone.
  const auto moves = plan_state_moves(parameters, Dtype::bf16, placed, want).value();
  CHECK(moves.sent_bytes == 24 * (2 + 4 + 8));
}

TEST_CASE("after the moves everybody has what is wanted, whatever the layouts",
          "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto parameters = testing::random_parameters(random);
    const auto have = testing::random_placement(parameters, random);
    const auto want = testing::random_placement(parameters, random);
    const auto moves = plan_state_moves(parameters, Dtype::fp32, have, want).value();
    std::map<std::pair<DeviceSlot, ShardKey>, std::int64_t> came;
    std::map<DeviceSlot, std::int64_t> sent;
    for (const StateMove& move : moves.moves) {
      // The sender holds all of the piece.
      CHECK(std::any_of(have.begin(), have.end(), [&](const Shard& shard) {
        return testing::covers(shard.key, move.piece) &&
               std::binary_search(shard.holders.begin(), shard.holders.end(), move.from);
      }));
      for (const Shard& shard : want)
        if (testing::covers(shard.key, move.piece) &&
            std::binary_search(shard.holders.begin(), shard.holders.end(), move.to))
          came[{move.to, shard.key}] += elements_of(move.piece.box);
      if (move.from.node != move.to.node)
        sent[move.from] +=
            elements_of(move.piece.box) * bytes_per_element(move.piece.kind, Dtype::fp32);
    }
    // Each element of each shard came once, or was there. (Boxes of one kind do not overlap.)
    for (const Shard& shard : want)
      for (const DeviceSlot& holder : shard.holders) {
        const bool there = std::any_of(have.begin(), have.end(), [&](const Shard& old) {
          return old.key == shard.key &&
                 std::binary_search(old.holders.begin(), old.holders.end(), holder);
        });
        CHECK(came[{holder, shard.key}] == (there ? 0 : elements_of(shard.key.box)));
      }
    std::int64_t most = 0;
    for (const auto& [device, bytes] : sent) most = std::max(most, bytes);
    CHECK(most == moves.max_sent_bytes);
    CHECK(static_cast<double>(most) <= 1.2 * static_cast<double>(moves.lower_bound_bytes));
  }
}

/// The devices of its node that could have sent a piece.
std::vector<std::int64_t> near_holders(const StatePlacement& have, const StateMove& move) {
  std::set<std::int64_t> holders;
  for (const Shard& shard : have)
    if (testing::covers(shard.key, move.piece))
      for (const DeviceSlot& holder : shard.holders)
        if (holder.node == move.to.node) holders.insert(holder.local_index);
  return {holders.begin(), holders.end()};
}

TEST_CASE("inside a node the busiest device sends hardly more than it must",
          "[scheduler][property]") {
  int shared = 0, above = 0;
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto parameters = testing::random_parameters(random);
    const testing::DrawnHolders drawn{2, 4, 6};
    const auto have = testing::random_placement(parameters, random, drawn);
    const auto want = testing::random_placement(parameters, random, drawn);
    std::map<NodeId, std::map<DeviceSlot, std::int64_t>> sent;
    std::map<NodeId, std::vector<CopyItem>> reads;
    const auto planned = plan_state_moves(parameters, Dtype::fp32, have, want).value();
    for (const StateMove& move : planned.moves) {
      if (move.from.node != move.to.node || move.from == move.to) continue;
      const std::int64_t bytes =
          elements_of(move.piece.box) * bytes_per_element(move.piece.kind, Dtype::fp32);
      sent[move.to.node][move.from] += bytes;
      reads[move.to.node].push_back({"", bytes, near_holders(have, move), {move.to.local_index}});
    }
    for (const auto& [node, items] : reads) {
      std::int64_t most = 0;
      for (const auto& [device, bytes] : sent[node]) most = std::max(most, bytes);
      const std::int64_t bound = plan_copies(items).value().lower_bound_bytes;
      CHECK(most >= bound);
      shared += sent[node].size() > 1 ? 1 : 0;
      above += static_cast<double>(most) > 1.2 * static_cast<double>(bound) ? 1 : 0;
    }
  }
  CAPTURE(shared, above);
  CHECK(shared > 900);
  CHECK(above <= 1);  // Of 983.
}

TEST_CASE("what moves come to is known without planning them", "[scheduler][property]") {
  std::int64_t exact = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto parameters = testing::random_parameters(random);
    const auto have = testing::random_placement(parameters, random);
    const auto want = testing::random_placement(parameters, random);
    const auto moves = plan_state_moves(parameters, Dtype::fp32, have, want).value();
    const auto totals = total_moves(parameters, Dtype::fp32, have, want).value();
    CHECK(totals.arriving == arriving_bytes(moves, Dtype::fp32));
    std::map<DeviceSlot, std::int64_t> received;
    std::int64_t busiest = moves.max_sent_bytes;
    for (const StateMove& move : moves.moves)
      if (move.from.node != move.to.node)
        busiest =
            std::max(busiest, received[move.to] += elements_of(move.piece.box) *
                                                   bytes_per_element(move.piece.kind, Dtype::fp32));
    CHECK(totals.least_busiest.count() <= busiest);
    exact += totals.least_busiest.count() == busiest ? 1 : 0;
  }
  CHECK(exact > 100);  // A bound that is far off would be of no use.
}

TEST_CASE("ranks of tensor parallelism keep ranges of a parameter, in order", "[scheduler]") {
  const auto boxes = [](ParameterSplit split, std::int32_t tp) {
    std::vector<IndexRange> ranges;
    const ParameterInfo matrix{"a", {6, 4}, {}, true, split};
    for (std::int32_t rank = 0; rank < tp; ++rank) {
      const Box box = rank_box(matrix, tp, rank);
      ranges.push_back(box[split.dimension == 1 ? 1 : 0]);
      CHECK(box[split.dimension == 1 ? 0 : 1].size() == (split.dimension == 1 ? 6 : 4));
    }
    return ranges;
  };
  using Ranges = std::vector<IndexRange>;
  CHECK(boxes({}, 2) == Ranges{{0, 6}, {0, 6}});
  CHECK(boxes({0, 0}, 2) == Ranges{{0, 3}, {3, 6}});
  CHECK(boxes({1, 0}, 4) == Ranges{{0, 1}, {1, 2}, {2, 3}, {3, 4}});
  CHECK(boxes({0, 0}, 4) == Ranges{{0, 1}, {1, 3}, {3, 4}, {4, 6}});
  CHECK(boxes({0, 2}, 4) == Ranges{{0, 3}, {0, 3}, {3, 6}, {3, 6}});  // Two heads, four ranks.
  CHECK(boxes({0, 3}, 2) == Ranges{{0, 2}, {2, 6}});
}

TEST_CASE("each rank of a grid wants its own box", "[scheduler]") {
  const std::vector<ParameterInfo> parameters{{"matrix", {4, 6}, {{ModuleId{0}, 0}}, true, {0, 0}},
                                              {"norm", {6}, {{ModuleId{0}, 0}}, true}};
  const HandLayout layout{
      {{{.node = 0, .runs = {{"llm", {}}}, .devices = {0, 1, 2, 3}, .tp = 2, .cp = 2}}}, {}};
  const auto plan = place_by_hand(testing::text_llm(1), layout, {1, 4}).value();
  const auto device = [](std::int32_t index) { return DeviceSlot{NodeId{0}, index}; };
  const auto placed = place_state(plan, parameters, Dtype::fp32);
  REQUIRE(placed.size() == 6);
  CHECK(placed[0] == value_of(0, {{0, 2}, {0, 6}}, {device(0), device(2)}));
  CHECK(placed[1] == value_of(0, {{2, 4}, {0, 6}}, {device(1), device(3)}));
  CHECK(placed[4] == value_of(1, {{0, 6}}, {device(0), device(1), device(2), device(3)}));
  // On one device more than before: the halves come from those that have them.
  const HandLayout single{{{{0, 4, {{"llm", {}}}}}}, {}};
  const auto other =
      place_by_hand(testing::text_llm(1), single, {1, 5}, IdleDevices::left_out).value();
  const auto moves =
      plan_state_moves(parameters, Dtype::fp32, placed, place_state(other, parameters, Dtype::fp32))
          .value()
          .moves;
  REQUIRE(moves.size() == 6);
  CHECK(moves[0].piece.box == Box{{0, 2}, {0, 6}});
  CHECK(moves[1].piece.box == Box{{2, 4}, {0, 6}});
}

TEST_CASE("between random grids every element comes once, from a device that has it",
          "[scheduler][property]") {
  std::size_t moved = 0, above = 0;
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto model = testing::random_model(random);
    const auto parameters = testing::parameters_for(model, random);
    const testing::DrawnGrids grids = seed % 2 == 0 ? testing::DrawnGrids{} : testing::kLargeGrids;
    const auto placed = [&] {
      return place_state(testing::random_grid_plan(random, model, grids), parameters, Dtype::bf16);
    };
    const auto have = placed(), want = placed();
    const auto planned = plan_state_moves(parameters, Dtype::bf16, have, want).value();
    const auto& moves = planned.moves;
    // The bound knows no pieces, which go as a whole: of matrices this small one may be much.
    std::int64_t largest = 0;
    for (const StateMove& move : moves)
      largest = std::max(
          largest, elements_of(move.piece.box) * bytes_per_element(move.piece.kind, Dtype::bf16));
    CHECK(planned.max_sent_bytes <= planned.lower_bound_bytes + largest);
    above += static_cast<double>(planned.max_sent_bytes) >
             1.2 * static_cast<double>(planned.lower_bound_bytes);
    for (const StateMove& move : moves)
      CHECK(std::ranges::any_of(have, [&](const Shard& shard) {
        return shard.key.parameter == move.piece.parameter && shard.key.kind == move.piece.kind &&
               contains(shard.key.box, move.piece.box) &&
               std::ranges::find(shard.holders, move.from) != shard.holders.end();
      }));
    for (const Shard& shard : want)
      for (const DeviceSlot& device : shard.holders) {
        if (testing::overlaps(want, shard, device)) continue;  // Frozen, on grids that cross.
        std::int64_t elements = 0;
        for (const StateMove& move : moves)
          if (move.to == device && move.piece.parameter == shard.key.parameter &&
              move.piece.kind == shard.key.kind && contains(shard.key.box, move.piece.box))
            elements += elements_of(move.piece.box);
        const bool stays = std::ranges::any_of(have, [&](const Shard& known) {
          return known.key == shard.key &&
                 std::ranges::find(known.holders, device) != known.holders.end();
        });
        CHECK(elements == (stays ? 0 : elements_of(shard.key.box)));
        moved += elements > 0 ? 1 : 0;
      }
  }
  CHECK(moved > 2500);
  CHECK(above <= 3);  // Of 500, by less than a third.
}

}  // namespace
}  // namespace troupe::scheduler
