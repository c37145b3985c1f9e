// Stages on tp x cp grids: who runs whose list, what ranks wait for, what they send and keep.

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <random>
#include <set>

#include "runtime/vocabulary/gradient_sum.hpp"
#include "scheduler/check/check_plan.hpp"
#include "scheduler/iteration/list_schedule.hpp"
#include "scheduler/iteration/rank_links.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/iteration/sum_traffic.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/simulate/predicted_costs.hpp"
#include "scheduler/simulate/simulate_plan.hpp"
#include "tests/scheduler/checked_faults.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using testing::draw;
using testing::kinds;
using testing::text_of;

using Devices = std::vector<std::int32_t>;

HandStage on_grid(std::int32_t node, Devices devices, std::int32_t tp, std::int32_t cp,
                  std::vector<HandRun> runs) {
  return {.node = node, .runs = std::move(runs), .devices = std::move(devices), .tp = tp, .cp = cp};
}

HandRun all(const std::string& module) { return {module, {}}; }

/// An encoder with its projector and an llm; matrices of the llm are split.
ModelGraph vision_and_llm() {
  ModelGraph graph = testing::vision_audio_llm();
  graph.modules.erase(graph.modules.begin() + 2, graph.modules.begin() + 4);
  graph.modules[0].next = {ModuleId{1}};
  graph.modules[1].next = {ModuleId{2}};
  for (auto& layer : graph.modules.back().layers)
    layer.splits = {{layer.parameter_elements / 2, 0}};
  return graph;
}

std::vector<std::int32_t> leads_of(const ParallelPlan& plan) {
  std::vector<std::int32_t> list;
  for (const DeviceId lead : plan.leads) list.push_back(lead.value);
  return list;
}

TEST_CASE("devices of the same stages run one list", "[scheduler]") {
  const auto model = vision_and_llm();
  // The encoder on four devices, two llm replicas on two of them each.
  const HandLayout layout{{},
                          {{{"vision"}, {on_grid(0, {0, 1, 2, 3}, 4, 1, {all("vision")})}},
                           {{"llm"}, {on_grid(0, {0, 1}, 2, 1, {all("llm")})}},
                           {{"llm"}, {on_grid(0, {3, 2}, 1, 2, {all("llm")})}}}};
  const auto plan = place_by_hand(model, layout, {1, 4}).value();
  CHECK(leads_of(plan) == Devices{0, 0, 2, 2});
  CHECK(plan.leads_of(StageId{0}) == std::vector{DeviceId{0}, DeviceId{2}});
  CHECK(plan.leads_of(StageId{2}) == std::vector{DeviceId{2}});
  CHECK(plan.team_sizes() == Devices{2, 0, 2, 0});
  // A holder is a row: of tp 2 one, of cp 2 two.
  const auto llm = std::ranges::find_if(plan.groups, [&](const ParameterGroup& group) {
    return group.uses.front().layer.module == model.llm();
  });
  REQUIRE(llm != plan.groups.end());
  CHECK(llm->holders == std::vector{DeviceId{0}, DeviceId{3}, DeviceId{2}});
  const auto roles =
      plan_sum(plan, GroupId{static_cast<std::size_t>(llm - plan.groups.begin())}).roles;
  CHECK(roles[0].tp() == 2);
  CHECK(roles[1].tp() == 1);
}

TEST_CASE("of the holders of one list the one with the largest chunk says how long its sums take",
          "[scheduler]") {
  auto model = testing::text_llm(2);
  for (auto& layer : model.modules[0].layers) layer.parameter_elements = 2 * kChunkElementsMin + 1;
  const HandLayout layout{{}, {{{"llm"}, {on_grid(0, {0, 1}, 1, 2, {all("llm")})}}}};
  const auto plan = place_by_hand(model, layout, {1, 2}).value();
  REQUIRE(leads_of(plan) == Devices{0, 0});
  const SumTraffic sum(plan, GroupId{0});  // The second holder owns the longer chunk.
  REQUIRE(plan_sum(plan, GroupId{0}).roles[1].adds == kChunkElementsMin + 1);
  for (const auto kind : {ActionKind::reduce_send, ActionKind::reduce}) {
    CHECK(sum.lists(kind) == 1);
    CHECK(sum.sent(DeviceId{0}, kind) == LinkElements{0, kChunkElementsMin + 1, 0});
  }
  CHECK(sum.added(DeviceId{0}, ActionKind::reduce).elements == kChunkElementsMin + 1);
}

TEST_CASE("a plan of single devices has no leads", "[scheduler]") {
  CHECK(place_by_hand(testing::text_llm(4), {}, {2, 1}).value().leads.empty());
}

TEST_CASE("a grid that is none is refused", "[scheduler][errors]") {
  const auto refused = [](const HandStage& stage) {
    return place_by_hand(testing::text_llm(4), {{{stage}}, {}}, {1, 4}, IdleDevices::left_out)
        .error();
  };
  CHECK_THAT(refused(on_grid(0, {0, 1, 2}, 2, 2, {all("llm")})).message,
             ContainsSubstring("takes 4 devices, found 3"));
  CHECK_THAT(refused(on_grid(0, {0, 1, 2}, 2, 2, {all("llm")})).where, EndsWith(".devices"));
  CHECK_THAT(refused(on_grid(0, {}, 2, 1, {all("llm")})).where, EndsWith(".device"));
  CHECK_THAT(refused(on_grid(0, {1, 1}, 2, 1, {all("llm")})).message, ContainsSubstring("twice"));
  CHECK_THAT(refused(on_grid(0, {3, 4}, 1, 2, {all("llm")})).message,
             ContainsSubstring("no device 4"));
  CHECK_THAT(refused(on_grid(0, {}, 0, 1, {all("llm")})).message, ContainsSubstring("no ranks"));
}

TEST_CASE("what trains the same stands on one grid or apart", "[scheduler][errors]") {
  const HandLayout crossed{
      {{on_grid(0, {0, 1}, 2, 1, {all("llm")})}, {on_grid(0, {1, 2}, 2, 1, {all("llm")})}}, {}};
  const auto refused = place_by_hand(testing::text_llm(4), crossed, {1, 3});
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message, ContainsSubstring("device 1 of node 0"));
  const HandLayout same{
      {{on_grid(0, {0, 1}, 2, 1, {all("llm")})}, {on_grid(0, {0, 1}, 2, 1, {all("llm")})}}, {}};
  CHECK(place_by_hand(testing::text_llm(4), same, {1, 2}).ok());
}

TEST_CASE("tensor parallelism shares matrices and keeps the rest", "[scheduler]") {
  CHECK(split_over(100, {{60, 0}}, 1) == 100);
  CHECK(split_over(100, {{60, 0}}, 2) == 70);
  CHECK(split_over(100, {{60, 0}}, 4) == 55);
  // Three heads of 20 over two ranks: the fuller one has two; over four each has one.
  CHECK(split_over(100, {{60, 3}}, 2) == 80);
  CHECK(split_over(100, {{60, 3}}, 4) == 60);
  CHECK(split_over(100, {{40, 0}, {20, 1}}, 2) == 80);
}

TEST_CASE("ranks share what they send", "[scheduler]") {
  CHECK(rank_share({1, 1}, {1, 1}) == 1);
  CHECK(rank_share({2, 1}, {2, 1}) == 1);    // Each to its own partner.
  CHECK(rank_share({1, 2}, {1, 2}) == 0.5);  // Each half of the rows.
  CHECK(rank_share({1, 1}, {4, 1}) == 4);    // One sends all four theirs.
  CHECK(rank_share({4, 1}, {1, 1}) == 1);    // One link takes all.
  CHECK(rank_share({2, 2}, {2, 1}) == 1);
}

TEST_CASE("rows stay on their devices where each rank has what it needs", "[scheduler]") {
  ParallelPlan plan;
  plan.devices.assign(2, {NodeId{0}, 0});
  const auto kind = [&](Parallelism from, Parallelism to) {
    const auto on = [](Parallelism grid) {
      Stage stage;
      stage.devices = {DeviceId{0}, DeviceId{1}};
      stage.grid = grid;
      return stage;
    };
    return link_class(plan, on(from), on(to));
  };
  CHECK(kind({2, 1}, {2, 1}) == LinkClass::device);
  CHECK(kind({2, 1}, {1, 2}) == LinkClass::device);  // All have all, and need half.
  CHECK(kind({1, 2}, {1, 2}) == LinkClass::device);
  CHECK(kind({1, 2}, {2, 1}) == LinkClass::node);  // Each has the other's half.
}

/// Costs that are easy to add up: a forward takes 10 ms on the encoder and 4 on the llm.
SimulationCosts simple_costs(const ParallelPlan& plan) {
  SimulationCosts costs;
  costs.task_ms = [&plan](StageId stage, const std::vector<std::int32_t>&, TaskKind) {
    return plan.is_llm(stage) ? 4.0 : 10.0;
  };
  return costs;
}

IterationPlan planned(const ParallelPlan& plan, std::vector<SampleShape> samples,
                      const std::string& schedule = "1f1b") {
  IterationInput input;
  const auto count = static_cast<std::int32_t>(samples.size());
  input.samples = std::move(samples);
  input.microbatches = assign_by_count(plan, count, count);
  input.schedule = schedule;
  input.task_cost = simple_costs(plan).task_ms;
  return plan_iteration(plan, std::move(input)).value();
}

/// Both halves of a grid have an llm of their own, and an encoder in common.
ParallelPlan shared_encoder() {
  auto model = vision_and_llm();
  model.modules[0].freeze = model.modules[1].freeze = true;
  const HandLayout layout{{},
                          {{{"vision"}, {on_grid(0, {0, 1}, 2, 1, {all("vision")})}},
                           {{"llm"}, {on_grid(0, {0}, 1, 1, {all("llm")})}},
                           {{"llm"}, {on_grid(0, {1}, 1, 1, {all("llm")})}}}};
  return place_by_hand(model, layout, {1, 2}).value();
}

TEST_CASE("a task of several devices waits until all are free", "[scheduler]") {
  TaskGraph graph;
  graph.stages = {{0, 1, false}, {1, 1, false}, {1, 2, false, {0}}};
  const auto slow = graph.add({TaskKind::forward, 0, 0, 0, 5});
  const auto quick = graph.add({TaskKind::forward, 1, 0, 0, 2});
  const auto both = graph.add({TaskKind::forward, 2, 0, 0, 3});
  graph.finish();
  CHECK(graph.device_count() == 2);
  const auto made = list_schedule(graph, {{{slow}}, {{quick}}, {{both}}}).timeline;
  CHECK(made.begin_ms == std::vector<double>{0, 0, 5});
  CHECK(made.order == DeviceOrders{{slow, both}, {quick, both}});
  CHECK(made.idle_ms == std::vector<double>{0, 3});
  CHECK(made.peak_in_flight == std::vector<std::int32_t>{1, 1, 1});
  CHECK(in_flight_peaks(graph, made.order) == made.peak_in_flight);
  const auto again = replay(graph, made.order);
  CHECK(again.stuck.empty());
  CHECK(again.timeline.begin_ms == made.begin_ms);
  // Two of them in two orders wait for each other.
  const auto second = graph.add({TaskKind::forward, 2, 1, 0, 3});
  graph.finish();
  CHECK(replay(graph, {{slow, both, second}, {quick, second, both}}).stuck.size() == 2);
}

TEST_CASE("an action of several lists begins when all have come", "[scheduler]") {
  const auto plan = shared_encoder();
  // Text for the first llm, a picture for the second: F of text, then the encoder on both devices.
  auto iteration = planned(plan, {testing::sample(0, 0), testing::sample(1, 0)});
  REQUIRE(check(plan, iteration).empty());
  const auto forward_of = [&](std::size_t device, StageId stage) {
    return std::ranges::find_if(iteration.actions[device], [&](const Action& action) {
      return action.kind == ActionKind::forward && action.stage == stage;
    });
  };
  const StageId encoder{0}, first{1};
  REQUIRE(forward_of(0, encoder) != iteration.actions[0].end());
  REQUIRE(forward_of(1, encoder) != iteration.actions[1].end());
  // Device 0: its own text first (F, B), then the encoder, which device 1 has to wait for.
  auto& list = iteration.actions[0];
  std::stable_partition(list.begin(), list.end(), [&](const Action& action) {
    return action.stage == first && action.microbatch.valid();
  });
  REQUIRE(check(plan, iteration).empty());
  SimulationOptions options;
  options.record_timeline = true;
  const auto step = simulate(plan, iteration, simple_costs(plan), options).value();
  std::map<std::int32_t, double> begins;
  for (const auto& event : step.events) {
    const auto& action =
        iteration.actions[event.device.index()][static_cast<std::size_t>(event.index)];
    if (action.stage == encoder && action.kind == ActionKind::forward)
      begins[event.device.value] = event.begin_ms;
  }
  CHECK(begins == std::map<std::int32_t, double>{{0, 8}, {1, 8}});
  CHECK(step.step_ms == Approx(8 + 10 + 4 + 4));
  CHECK(step.stage_ms[0] == 10);  // Counted once, though two devices ran it.
  CHECK(step.bubble == Approx(1 - (18 + 18) / (2 * 26.0)));
}

TEST_CASE("lists that meet in two orders never run", "[scheduler][errors]") {
  const auto plan = shared_encoder();
  auto iteration = planned(plan, {testing::sample(1, 0), testing::sample(1, 0)}, "gpipe");
  REQUIRE(check(plan, iteration).empty());
  // The encoder's two forwards the other way round on device 1; what they send goes along.
  auto& list = iteration.actions[1];
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].stage == StageId{0} && list[i].kind == ActionKind::forward) places.push_back(i);
  REQUIRE(places.size() == 2);
  std::swap(list[places[0]], list[places[1]]);
  std::swap(list[places[0] + 1], list[places[1] + 1]);
  const auto faults = check(plan, iteration);
  CAPTURE(text_of(faults));
  CHECK(kinds(faults) == std::set{FaultKind::deadlock});
  CHECK(std::ranges::any_of(faults, [](const Fault& fault) {
    return fault.why == "another device of its grid never comes to it";
  }));
  CHECK_FALSE(simulate(plan, iteration, simple_costs(plan)).ok());
}

TEST_CASE("actions of a grid stand in each of its lists, and in no other", "[scheduler][errors]") {
  const auto plan = shared_encoder();
  const auto sound = planned(plan, {testing::sample(1, 0), testing::sample(1, 0)});
  auto missing = sound;
  std::erase_if(missing.actions[1], [](const Action& action) {
    return action.stage == StageId{0} && action.kind == ActionKind::forward;
  });
  CHECK(kinds(check(plan, missing)).contains(FaultKind::missing));
  const HandLayout one{{{on_grid(0, {0, 1}, 2, 1, {all("llm")})}}, {}};
  const auto led = place_by_hand(testing::text_llm(4), one, {1, 2}).value();
  auto iteration = planned(led, {testing::sample(0, 0)});
  REQUIRE(check(led, iteration).empty());
  CHECK(iteration.actions[1].empty());
  iteration.actions[1] = iteration.actions[0];
  CHECK(kinds(check(led, iteration)) == std::set{FaultKind::unknown});
  auto stranger = led;
  stranger.leads = {DeviceId{0}, DeviceId{1}};
  CHECK(kinds(check(stranger, planned(led, {testing::sample(0, 0)}))).contains(FaultKind::unknown));
  auto narrow = led;
  narrow.stages[0].grid = {2, 2};
  CHECK(kinds(check(narrow, planned(led, {testing::sample(0, 0)}))) ==
        std::set{FaultKind::missing});
}

TEST_CASE("ranks are different devices of one node", "[scheduler][errors]") {
  const HandLayout one{{{on_grid(0, {0, 1}, 2, 1, {all("llm")})}}, {}};
  const auto sound = place_by_hand(testing::text_llm(4), one, {1, 2}).value();
  const auto iteration = planned(sound, {testing::sample(0, 0)});
  auto twice = sound;
  twice.stages[0].devices[1] = DeviceId{0};
  CHECK(kinds(check(twice, iteration)).contains(FaultKind::duplicate));
  auto apart = sound;
  apart.devices[1].node = NodeId{1};
  const auto faults = check(apart, iteration);
  CHECK(std::ranges::any_of(
      faults, [](const Fault& fault) { return fault.why == "its ranks stand on two nodes"; }));
  auto nowhere = sound;
  nowhere.stages[0].devices[1] = DeviceId{7};
  CHECK(kinds(check(nowhere, iteration)).contains(FaultKind::unknown));
}

TEST_CASE("each rank sums its own share", "[scheduler]") {
  // One layer of 80,000 elements, half of them split. Two replicas on two nodes.
  auto model = testing::text_llm(1);
  model.modules[0].layers[0].parameter_elements = 80'000;
  model.modules[0].layers[0].splits = {{40'000, 0}};
  const auto step_of = [&](std::int32_t tp) {
    Devices devices;
    for (std::int32_t d = 0; d < tp; ++d) devices.push_back(d);
    const HandLayout layout{
        {{on_grid(0, devices, tp, 1, {all("llm")})}, {on_grid(1, devices, tp, 1, {all("llm")})}},
        {}};
    const auto plan = place_by_hand(model, layout, {2, tp}).value();
    SimulationCosts costs;
    costs.bytes_per_element = 4;
    costs.network.gigabytes_per_s = 1e-3;  // 1,000 bytes per ms.
    return simulate(plan, planned(plan, {testing::sample(0, 0), testing::sample(0, 0)}), costs)
        .value()
        .step_ms;
  };
  // Half of the elements there, the other half's sum back: 2 x 40,000 x 4 bytes.
  CHECK(step_of(1) == Approx(2 * 160));
  // With two ranks each has 20,000 split elements and 40,000 whole ones: 60,000 of 80,000.
  CHECK(step_of(2) == Approx(2 * 120));
  CHECK(step_of(4) == Approx(2 * 100));
}

TEST_CASE("ranks along cp add up their gradients, inside the node", "[scheduler]") {
  auto model = testing::text_llm(1);
  model.modules[0].layers[0].parameter_elements = 80'000;
  const HandLayout layout{{{on_grid(0, {0, 1}, 1, 2, {all("llm")})}}, {}};
  const auto plan = place_by_hand(model, layout, {1, 2}).value();
  const auto iteration = planned(plan, {testing::sample(0, 0)});
  REQUIRE(check(plan, iteration).empty());
  REQUIRE(plan.groups[0].holders.size() == 2);
  SimulationCosts costs;
  costs.bytes_per_element = 4;
  costs.node.gigabytes_per_s = 1e-3;
  CHECK(simulate(plan, iteration, costs).value().step_ms == Approx(2 * 160));
}

TEST_CASE("each rank keeps its share of the state, on every device of the grid", "[scheduler]") {
  auto model = testing::text_llm(2);
  for (auto& layer : model.modules[0].layers) {
    layer.parameter_elements = 100;
    layer.constant_elements = 10;
    layer.splits = {{60, 0}};
  }
  const HandLayout layout{{{on_grid(0, {0, 1, 2, 3}, 2, 2, {all("llm")})}}, {}};
  const auto plan = place_by_hand(model, layout, {1, 4}).value();
  // fp32: value, gradient and two moments of 70 elements, the value of 10 constants.
  CHECK(stage_state_bytes(plan, {}) == std::vector<double>{2 * (70 * 16 + 10 * 4)});
  SimulationCosts costs = simple_costs(plan);
  costs.activation_bytes = [](StageId, const std::vector<std::int32_t>&) { return 5.0; };
  costs.state_bytes = [](StageId) { return 100.0; };
  const auto step = simulate(plan, planned(plan, {testing::sample(0, 0)}), costs).value();
  CHECK(step.peak_memory_bytes == std::vector<double>(4, 105.0));
  auto frozen = plan;
  frozen.model.modules[0].freeze = true;
  frozen.groups = parameter_groups(frozen);
  CHECK(stage_state_bytes(frozen, {}) == std::vector<double>{2 * (70 * 4 + 10 * 4)});
}

}  // namespace
}  // namespace troupe::scheduler
