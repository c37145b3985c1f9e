// The routes of messages of a plan: which is chosen, what its legs take, where relays stand.

#include "scheduler/iteration/message_routes.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>

#include "scheduler/check/check_plan.hpp"
#include "scheduler/iteration/boundary_routes.hpp"
#include "scheduler/simulate/simulate_plan.hpp"
#include "tests/scheduler/checked_faults.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::draw;
using testing::sample;
using testing::text_of;

/// Vision replicas of one stage each and llm replicas of one, on a node of its own each.
ParallelPlan replicas_plan(int encoders, int llms, ModelGraph model = testing::vision_audio_llm()) {
  HandLayout layout;
  for (int r = 0; r < encoders; ++r)
    layout.replicas.push_back({{"vision", "audio"}, {{r, 0, {{"vision", {}}, {"audio", {}}}}}});
  for (int r = 0; r < llms; ++r)
    layout.replicas.push_back({{"llm"}, {{encoders + r, 0, {{"llm", {}}}}}});
  return place_by_hand(model, layout, {encoders + llms, 1}).value();
}

/// Six samples with pictures in three microbatches per llm replica.
IterationInput pictures(const ParallelPlan& plan, Route route) {
  IterationInput input;
  for (int i = 0; i < 6; ++i) input.samples.push_back(sample(1, 0));
  input.microbatches = assign_by_count(plan, 6, 3);
  input.routes.pin = route;
  return input;
}

TEST_CASE("rows that are gathered pass through the first replica's device", "[scheduler]") {
  const auto plan = replicas_plan(3, 2);
  const auto iteration = plan_iteration(plan, pictures(plan, Route::gather_scatter)).value();
  std::map<StageId, std::size_t> relayed, sent;
  std::size_t relays = 0;
  for (const Message& message : iteration.messages) {
    CHECK(message.route == Route::gather_scatter);
    ++sent[message.source.stage];
    relayed[message.source.stage] += message.relay.valid();
    if (message.relay.valid()) CHECK(message.relay == DeviceId{0});
  }
  CHECK(sent.size() == 3);
  CHECK(relayed[StageId{0}] == 0);  // Its rows are there already.
  for (const StageId other : {StageId{1}, StageId{2}}) CHECK(relayed[other] == sent[other]);
  for (std::size_t d = 0; d < plan.devices.size(); ++d)
    for (const Action& action : iteration.actions[d])
      if (action.kind == ActionKind::relay || action.kind == ActionKind::relay_gradient) {
        ++relays;
        CHECK(d == 0);
      }
  CHECK(relays == 2 * (relayed[StageId{1}] + relayed[StageId{2}]));
  CHECK(iteration.boundaries ==
        std::vector<BoundaryRoute>{
            {ModuleId{1}, ModuleGroupId{1}, Route::gather_scatter, true, {0, 0, 0}}});
}

TEST_CASE("a single encoder replica has its rows gathered", "[scheduler]") {
  const auto plan = replicas_plan(1, 4);
  const auto iteration = plan_iteration(plan, pictures(plan, Route::gather_scatter)).value();
  for (const Message& message : iteration.messages) CHECK(!message.relay.valid());
  CHECK(check(plan, iteration).empty());
}

/// Links of 1 and 8 MB/s without latency, elements of 4 bytes.
double speeds(LinkClass link, double elements) {
  return link == LinkClass::network ? 4 * elements / 1000
         : link == LinkClass::node  ? 4 * elements / 8000
                                    : 0;
}

/// The routes of a plan whose llm stands on a tp x 1 grid of its own node and whose encoder on one
/// device.
std::vector<BoundaryRoute> chosen_for(std::int32_t tp, std::optional<Route> pin) {
  HandLayout layout;
  layout.replicas.push_back({{"vision", "audio"}, {{0, 0, {{"vision", {}}, {"audio", {}}}}}});
  HandStage llm{1, 0, {{"llm", {}}}};
  for (std::int32_t rank = 0; rank < tp; ++rank) llm.devices.push_back(rank);
  llm.tp = tp;
  layout.replicas.push_back({{"llm"}, {llm}});
  const auto plan =
      place_by_hand(testing::vision_audio_llm(), layout, {2, tp}, IdleDevices::left_out).value();
  auto input = pictures(plan, Route::direct);
  input.routes = {pin, speeds};
  return plan_iteration(plan, std::move(input)).value().boundaries;
}

TEST_CASE("the route that takes least is chosen, of equal ones the first", "[scheduler]") {
  // Six samples of two rows of 64 columns: 768 elements, 3.072 ms between nodes.
  const auto alone = chosen_for(1, std::nullopt);
  REQUIRE(alone.size() == 1);
  CHECK(alone[0].route == Route::direct);
  CHECK(!alone[0].pinned);
  CHECK(alone[0].predicted_ms[0] == Approx(3.072));
  CHECK(alone[0].predicted_ms[1] == alone[0].predicted_ms[0]);
  const auto wide = chosen_for(4, std::nullopt);
  CHECK(wide[0].route == Route::gather_scatter);
  CHECK(wide[0].predicted_ms[0] == Approx(4 * 3.072));
  // Scattered over the node at an eighth of the time, and exchanged.
  CHECK(wide[0].predicted_ms[1] == Approx(3.072 + 2 * 0.75 * 3.072 / 8));
  CHECK(wide[0].predicted_ms[2] == Approx(3.072 + 0.75 * 3.072 / 8));
  const auto pinned = chosen_for(4, Route::leader);
  CHECK(pinned[0].route == Route::leader);
  CHECK(pinned[0].pinned);
  CHECK(pinned[0].predicted_ms == wide[0].predicted_ms);
}

TEST_CASE("the legs of a message take what its ranks' messages take", "[scheduler][property]") {
  std::map<Route, int> seen;
  const LinkCost link_ms = [](LinkClass link, double elements) {
    return link == LinkClass::network ? 0.3 + elements / 100
           : link == LinkClass::node  ? 0.02 + elements / 1000
                                      : 0.001 + elements / 5000;
  };
  for (std::uint32_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto plan = testing::random_grid_plan(random, testing::vision_audio_llm());
    IterationInput input;
    input.samples = testing::random_samples(random, true, 8);
    input.microbatches = assign_by_count(plan, 8, 2);
    input.routes.pin = static_cast<Route>(draw(random, 0, 2));
    const auto iteration = plan_iteration(plan, std::move(input)).value();
    for (Message message : iteration.messages) {
      const auto ranks = [&](StageId stage) {
        RankGroup group{plan.at(stage).grid, {}};
        for (const DeviceId device : plan.at(stage).devices)
          group.ranks.push_back(plan.devices[device.index()]);
        return group;
      };
      const std::vector from{ranks(message.source.stage)}, to{ranks(message.destination.stage)};
      const bool meet = std::ranges::any_of(from[0].ranks, [&](const DeviceSlot& rank) {
        return std::ranges::find(to[0].ranks, rank) != to[0].ranks.end();
      });
      // Of grids that share some of their devices the legs know the slowest link alone.
      if (meet || plan.at(plan.at(message.source.stage).replica).group ==
                      plan.at(plan.at(message.destination.stage).replica).group)
        continue;
      message.rows = 144;  // Every cut is even.
      message.width = 1;
      for (const bool gradient : {false, true}) {
        const auto& a = gradient ? to : from;
        const auto& b = gradient ? from : to;
        // Its hub: the first stage of the group in its pipeline that ends the module.
        DeviceId hub;
        for (std::size_t s = 0; s < plan.stages.size() && !hub.valid(); ++s)
          if (plan.at(plan.stages[s].replica).pipeline == plan.pipeline_of(message.source.stage))
            for (const LayerRun& run : plan.stages[s].runs)
              if (run.module == message.module &&
                  run.layers.end == std::ssize(plan.model.at(message.module).layers))
                hub = plan.stages[s].devices.front();
        const auto messages = route_messages(
            message.route, a, b, std::vector<RowInterval>{{0, 0, 144}}, plan.devices[hub.index()]);
        const RouteLegs legs = legs_of(plan, message, gradient);
        const bool hub_apart = message.route == Route::gather_scatter && !message.relay.valid() &&
                               hub != plan.at(message.source.stage).devices.front();
        if (hub_apart) continue;  // It is one of the other ranks of an end: an upper bound.
        CHECK(legs.ms(link_ms, 144, 0, legs.count) == Approx(route_ms(messages, link_ms)));
        CHECK(legs.relayed <= legs.count);
        ++seen[message.route];
      }
    }
  }
  for (const Route route : {Route::direct, Route::leader, Route::gather_scatter})
    CHECK(seen[route] > 100);
}

TEST_CASE("a relay before what its rows wait for is a deadlock", "[scheduler]") {
  // The gradient of encoder 1's rows comes behind the llm's microbatch of encoder 0, whose rows
  // device 0 would send after it.
  const auto plan = replicas_plan(2, 1);
  IterationInput input;
  input.samples = {sample(1, 0), sample(1, 0)};
  input.microbatches = assign_by_count(plan, 2, 2);
  input.routes.pin = Route::gather_scatter;
  auto iteration = plan_iteration(plan, std::move(input)).value();
  auto& list = iteration.actions[0];
  const auto relay = std::ranges::find(list, ActionKind::relay_gradient, &Action::kind);
  REQUIRE(relay != list.end());
  std::rotate(list.begin(), relay, relay + 1);
  const auto faults = check(plan, iteration);
  INFO(text_of(faults));
  CHECK(testing::kinds(faults).contains(FaultKind::deadlock));
}

/// Encoders 0 and 1 and one llm with a picture each; a transfer of a picture's rows takes 1 ms (2
/// rows x 64 x 4 bytes at 0.512 MB/s), each pass 10 ms.
SimulatedStep gathered_step(const ParallelPlan& plan, Route route) {
  IterationInput input;
  input.samples = {sample(1, 0), sample(1, 0)};
  input.microbatches = assign_by_count(plan, 2, 2);
  input.routes.pin = route;
  const auto iteration = plan_iteration(plan, std::move(input)).value();
  CHECK(check(plan, iteration).empty());
  SimulationCosts costs;
  costs.network = {0, 0.000512};
  costs.task_ms = [](StageId, const auto&, TaskKind) { return 10.0; };
  costs.activation_bytes = [](StageId, const auto&) { return 0.0; };
  return simulate(plan, iteration, costs).value();
}

TEST_CASE("what passes through a device takes a transfer more", "[scheduler]") {
  const auto plan = replicas_plan(2, 1);
  const auto direct = gathered_step(plan, Route::direct);
  const auto gathered = gathered_step(plan, Route::gather_scatter);
  // The llm begins with the rows of encoder 0 in both. Its last gradient, of encoder 1's rows,
  // leaves at 51; the backward there begins at 52, or at 53 where it passes device 0.
  CHECK(direct.step_ms > 62);  // And sums of gradients.
  CHECK(gathered.step_ms - direct.step_ms == Approx(1));
}

TEST_CASE("rows that pass through a device take its memory meanwhile", "[scheduler]") {
  auto model = testing::vision_audio_llm();
  for (const std::size_t module : {0U, 1U, 2U, 3U}) model.modules[module].freeze = true;
  const auto plan = replicas_plan(2, 1, model);  // Encoders get no gradient.
  CHECK(gathered_step(plan, Route::direct).peak_memory_bytes[0] == 0);
  const auto gathered = gathered_step(plan, Route::gather_scatter);
  CHECK(gathered.peak_memory_bytes[0] == 512);
  CHECK(gathered.peak_memory_bytes[1] == 0);
}

}  // namespace
}  // namespace troupe::scheduler
