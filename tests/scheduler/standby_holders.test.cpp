#include "scheduler/state/standby_holders.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <random>
#include <set>

#include "scheduler/iteration/stage_graph.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::draw;
using testing::random_plan;

/// Stages of one layer each, on these nodes.
ParallelPlan chain_on(const std::vector<std::int32_t>& nodes, ModelGraph model) {
  HandLayout layout{{{}}};
  std::int32_t layer = 0, most = 0;
  for (const std::int32_t node : nodes) {
    layout.pipelines[0].push_back({node, 0, {{"llm", LayerRange{layer, layer + 1}}}});
    most = std::max(most, node);
    ++layer;
  }
  return place_by_hand(model, layout, {most + 1, 1}).value();
}

std::vector<DeviceId> holders_of(const ParallelPlan& plan, const StateUnit& unit) {
  const auto units = state_units(plan.model);
  const auto place = std::find_if(units.begin(), units.end(), [&](const StateUnit& other) {
    return other.layer == unit.layer && other.tied == unit.tied;
  });
  return unit_holders(plan)[static_cast<std::size_t>(place - units.begin())];
}

std::set<NodeId> nodes_of(const ParallelPlan& plan, const StateUnit& unit) {
  std::set<NodeId> nodes;
  for (const DeviceId device : holders_of(plan, unit))
    nodes.insert(plan.devices[device.index()].node);
  return nodes;
}

/// Bytes that each node keeps, counted anew.
std::map<NodeId, double> loads_of(const ParallelPlan& plan) {
  std::map<NodeId, double> loads;
  for (const NodeId node : plan.nodes()) loads[node] = 0;
  for (const StateUnit& unit : state_units(plan.model))
    for (const DeviceId device : holders_of(plan, unit))
      loads[plan.devices[device.index()].node] += unit.bytes(Dtype::fp32);
  return loads;
}

TEST_CASE("two nodes of one pipeline keep each other's layers", "[scheduler]") {
  const auto plan = chain_on({0, 1}, testing::text_llm(2));
  const auto safe = add_standbys(plan, {1, Dtype::fp32}).value();
  const LayerId first{ModuleId{0}, 0}, second{ModuleId{0}, 1};
  CHECK(safe.standbys == std::vector<Standby>{{DeviceId{0}, second, {}}, {DeviceId{1}, first, {}}});
  CHECK(safe.groups[0].holders == std::vector<DeviceId>{DeviceId{0}, DeviceId{1}});
  CHECK(safe.groups[0].standbys == 1);
  CHECK(safe.groups[1].holders == std::vector<DeviceId>{DeviceId{1}, DeviceId{0}});
}

/// A layer on node 0 and one on node 1; the others have no stage.
ParallelPlan with_spares(std::int32_t nodes, const Tolerance& tolerance) {
  const HandLayout layout{
      {{{0, 0, {{"llm", LayerRange{0, 1}}}}, {1, 0, {{"llm", LayerRange{1, 2}}}}}}};
  return place_by_hand(testing::text_llm(2), layout, {nodes, 1}, IdleDevices::left_out, tolerance)
      .value();
}

TEST_CASE("a spare node stands by for everything, and others for what it leaves", "[scheduler]") {
  for (const std::int64_t lost : {0, 1}) {
    const auto plan = with_spares(3, {lost, Dtype::fp32, 1});
    CHECK(plan.standbys.size() == state_units(plan.model).size());
    for (const Standby& standby : plan.standbys)
      CHECK(plan.devices[standby.device.index()].node == NodeId{2});
  }
  // Two may be lost: what one keeps and the spare one does, the other one does too.
  const auto plan = with_spares(3, {2, Dtype::fp32, 1});
  for (const StateUnit& unit : state_units(plan.model)) CHECK(nodes_of(plan, unit).size() == 3);
  // A node more than the job keeps spare is left out.
  CHECK((with_spares(4, {0, Dtype::fp32, 1}).nodes() ==
         std::set<NodeId>{NodeId{0}, NodeId{1}, NodeId{3}}));
}

TEST_CASE("spare nodes keep what they have room for, each what others do not", "[scheduler]") {
  const auto units = state_units(testing::text_llm(2));
  REQUIRE(units.size() == 2);
  double largest = 0;
  for (const StateUnit& unit : units) largest = std::max(largest, unit.bytes(Dtype::fp32));
  const Bytes room{static_cast<std::int64_t>(largest)};
  CHECK(with_spares(3, {0, Dtype::fp32, 1, room}).standbys.size() == 1);
  const auto two = with_spares(4, {0, Dtype::fp32, 2, room});
  REQUIRE(two.standbys.size() == 2);
  CHECK(two.standbys[0].layer != two.standbys[1].layer);
  // The spare one is node 2; what node 7 has is no matter.
  CHECK(with_spares(3, {0, Dtype::fp32, 1, room, {{NodeId{2}, Bytes{1}}}}).standbys.empty());
  CHECK(with_spares(3, {0, Dtype::fp32, 1, room, {{NodeId{7}, Bytes{1}}}}).standbys.size() == 1);
  const auto none = with_spares(3, {0, Dtype::fp32, 1, Bytes{1}});
  CHECK(none.standbys.empty());
  CHECK(none.nodes().size() == 2);
}

TEST_CASE("the largest goes first, each to the node that keeps least", "[scheduler]") {
  // Layers of 10, 11, 12 and 40 elements, 16 bytes each, on nodes 0, 1, 2 and 2; node 3 is empty.
  // The one of 40 goes to node 3 (0), that of 12 to node 0 (10), that of 11 to node 0 (22 against
  // 40 and 52), that of 10 to node 1 (11).
  auto model = testing::text_llm(4);
  model.modules[0].layers[3].parameter_elements = 40;
  auto plan = chain_on({0, 1, 2, 2}, model);
  plan.devices.push_back({NodeId{3}, 0});
  const auto safe = add_standbys(plan, {1, Dtype::fp32}).value();
  const auto layer = [](std::int32_t index) { return LayerId{ModuleId{0}, index}; };
  CHECK(safe.standbys == std::vector<Standby>{{DeviceId{0}, layer(1), {}},
                                              {DeviceId{0}, layer(2), {}},
                                              {DeviceId{1}, layer(0), {}},
                                              {DeviceId{3}, layer(3), {}}});
}

TEST_CASE("a frozen layer is kept by its value, a tied parameter once", "[scheduler]") {
  auto model = testing::vision_audio_llm();
  model.modules[0].freeze = true;
  model.modules[0].layers[0].constant_elements = 3;
  model.tied.push_back({"llm.embed", {{ModuleId{4}, 0}, {ModuleId{4}, 5}}, 640});
  const auto units = state_units(model);
  CHECK(units.front().trained == 0);
  CHECK(units.front().constant == 13);
  CHECK(units.front().bytes(Dtype::bf16) == 26);
  // bf16: value 2, master 4, moments 8, gradient 4.
  const auto tied = std::find_if(units.begin(), units.end(),
                                 [](const StateUnit& unit) { return !unit.tied.empty(); });
  REQUIRE(tied != units.end());
  CHECK(tied->bytes(Dtype::bf16) == 640 * 18);
  // Its two users stand on two nodes: it needs nobody else.
  const HandLayout layout{{{{0, 0, {{"vision", {}}, {"audio", {}}, {"llm", LayerRange{0, 3}}}},
                            {1, 0, {{"llm", LayerRange{3, 6}}}}}}};
  const auto plan =
      add_standbys(place_by_hand(model, layout, {2, 1}).value(), {1, Dtype::bf16}).value();
  for (const Standby& standby : plan.standbys) CHECK(standby.tied.empty());
  CHECK(std::any_of(plan.standbys.begin(), plan.standbys.end(), [](const Standby& standby) {
    return standby.device == DeviceId{1} && standby.layer.module == ModuleId{0};
  }));
}

TEST_CASE("fewer nodes than copies are refused with the nearest choice", "[scheduler][errors]") {
  const auto refused = add_standbys(chain_on({0, 1}, testing::text_llm(2)), {2, Dtype::fp32});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  CHECK(refused.error().where == "cluster.fault_tolerance");
  CHECK_THAT(refused.error().message, ContainsSubstring("holders on 3 nodes; there are 2"));
  CHECK_THAT(refused.error().fix, ContainsSubstring("cluster.fault_tolerance = 1"));
}

TEST_CASE("every unit gets holders on f + 1 nodes, none twice, and no more than it needs",
          "[scheduler][property]") {
  int added = 0, tied = 0, frozen = 0, spare = 0;
  for (std::uint32_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    auto plan = random_plan(random);
    for (int more = draw(random, 0, 2), next = 100; more > 0; --more)
      plan.devices.push_back({NodeId{next++}, 0});  // Nodes without a stage.
    CHECK(add_standbys(plan, {0, Dtype::fp32}).value() == plan);
    const int f = draw(random, 1, 3);
    const auto made = add_standbys(plan, {f, Dtype::fp32});
    REQUIRE(made.ok() == (static_cast<int>(plan.nodes().size()) > f));
    if (!made.ok()) continue;
    const ParallelPlan& safe = made.value();
    CHECK(safe.stages == plan.stages);
    CHECK(safe.groups == parameter_groups(safe));
    const auto units = state_units(safe.model);
    for (const StateUnit& unit : units) {
      const auto before = nodes_of(plan, unit), after = nodes_of(safe, unit);
      CHECK(after.size() == std::max(before.size(), static_cast<std::size_t>(f) + 1));
      // A standby holder for each node that is new, none where there are enough.
      const auto own = static_cast<std::size_t>(
          std::count_if(safe.standbys.begin(), safe.standbys.end(), [&](const Standby& standby) {
            return standby.layer == unit.layer && standby.tied == unit.tied;
          }));
      CHECK(own == after.size() - before.size());
      CHECK(holders_of(safe, unit).size() == holders_of(plan, unit).size() + own);
      frozen += own > 0 && unit.trained == 0;
    }
    for (const ParameterGroup& group : safe.groups)
      CHECK(std::set(group.holders.begin(), group.holders.end()).size() == group.holders.size());
    for (const Standby& standby : safe.standbys) {
      ++added;
      tied += !standby.tied.empty();
      spare += safe.devices[standby.device.index()].node.value >= 100;
    }
    CHECK(add_standbys(safe, {f, Dtype::fp32}).value() == safe);  // What is there counts.
    // The smallest that a node got came last: nobody who could have had it kept less then.
    const auto loads = loads_of(safe);
    std::map<NodeId, std::pair<double, StateUnit>> smallest;
    for (const Standby& standby : safe.standbys) {
      const StateUnit& unit = unit_of(units, standby);
      const double bytes = unit.bytes(Dtype::fp32);
      const auto [place, is_new] =
          smallest.try_emplace(safe.devices[standby.device.index()].node, bytes, unit);
      if (!is_new && bytes <= place->second.first) place->second = {bytes, unit};
    }
    for (const auto& [node, last] : smallest) {
      const auto taken = nodes_of(safe, last.second);
      for (const auto& [other, load] : loads) {
        if (taken.contains(other)) continue;
        CHECK(loads.at(node) - last.first <= load + 1e-6);
      }
    }
  }
  CHECK(added > 500);
  CHECK(tied > 20);
  CHECK(frozen > 100);
  CHECK(spare > 100);
}

}  // namespace
}  // namespace troupe::scheduler
