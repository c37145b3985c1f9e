#include "scheduler/recovery/replay_job.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/vocabulary/random.hpp"
#include "scheduler/recovery/template_layout.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;

// An llm of four layers with 10, 11, 12 and 13 elements, 12 bytes each (value and moments): 552 in
// all. `held` of them fit on a node; a step takes 240 ms over the number of pipelines.
JobReplayRequest small_job(const HandLayout& layout, std::int32_t places, std::int64_t held) {
  JobReplayRequest made;
  ReplayedJob& job = made.job;
  job.cluster = {places, 1};
  job.plan =
      place_by_hand(testing::text_llm(4), layout, job.cluster, IdleDevices::left_out).value();
  TemplateRequest planned;
  planned.layers.assign(4, {1, 2, Bytes{1}, {}});
  planned.node_count = places;
  planned.device_memory = Bytes{held};
  job.templates = make_templates(planned).value();
  for (std::int32_t layer = 0; layer < 4; ++layer)
    job.parameters.push_back(
        {"p" + std::to_string(layer), {10 + layer}, {{ModuleId{0}, layer}}, true});
  job.global_batch = 12;
  job.tolerance = {1, Dtype::fp32};
  job.network_bytes_per_ms = 100;
  job.step_ms = [](const ParallelPlan& plan) -> Result<double> {
    return 240.0 / static_cast<double>(plan.pipelines.size());
  };
  job.fits = [](const ParallelPlan&, const std::map<DeviceSlot, Bytes>&) -> Status {
    return Done{};
  };
  made.costs.loss = {5, 1, 0, 2, 4, false};
  made.costs.join = {0, 1, 0, 2, 0, false};
  made.costs.turnover_ms = 10;
  made.costs.restart_ms = 7;
  made.costs.storage_bytes_per_ms = 4;
  made.duration_ms = 1000;
  return made;
}

HandStage all_on(std::int32_t node) { return {node, 0, {{"llm", LayerRange{0, 4}}}}; }

/// A pipeline on each of three places.
JobReplayRequest three_copies(const RankList& nodes) {
  auto made = small_job({{{all_on(0)}, {all_on(1)}, {all_on(2)}}}, 3, 4);
  made.nodes = nodes;
  return made;
}

TEST_CASE("a loss costs the step under way and the phases of a loss", "[scheduler][recovery]") {
  // 80 ms a step. Node 2 goes at 100, 20 ms into the second one; nothing moves. 5 + 1 + 2 + 4: from
  // 112 on 120 ms a step, 7 of them and 48 ms.
  auto request = three_copies({0, 1, 2});
  request.events = {{100, {2}, {}}};
  const auto played = replay_job(request).value();
  CHECK(played.iterations == 8);
  CHECK(played.samples == 8 * 12);
  CHECK(played.time.lost_work_ms == Approx(20));
  CHECK(played.time.detection_ms == Approx(5));
  CHECK(played.time.reconfigure_ms == Approx(7));
  CHECK(played.time.copy_ms == 0);
  REQUIRE(played.events.size() == 1);
  const auto& event = played.events[0];
  CHECK(event.outcome == EventOutcome::reconfigured);
  CHECK(event.lost);
  CHECK(event.pipelines == std::vector<std::int64_t>{1, 1});
  CHECK(event.recovery_ms == Approx(12));
  CHECK(event.phases.replay_ms == Approx(124));
}

TEST_CASE("who joins waits for the step under way and the one that is planned",
          "[scheduler][recovery]") {
  // 120 ms a step. Node 5 comes at 130, in the second one; the third is planned and ends at 360.
  // All its 552 bytes come in 5.52 ms, sooner than four turnovers are worth; 3 ms more. From 368.52
  // on 80 ms a step: 7 and a piece.
  auto request = three_copies({0, 1});
  request.events = {{130, {}, {5}}};
  const auto played = replay_job(request).value();
  CHECK(played.iterations == 3 + 7);
  CHECK(played.time.lost_work_ms == 0);
  REQUIRE(played.events.size() == 1);
  const auto& event = played.events[0];
  CHECK_FALSE(event.lost);
  CHECK(event.time_ms == Approx(360));
  CHECK(event.copied_bytes == 552);
  CHECK(event.phases.copy_ms == Approx(5.52));
  CHECK(event.phases.warm_up_steps == 0);
  CHECK(event.iteration_ms == Approx(80));
}

TEST_CASE("state comes while the others train where that pays", "[scheduler][recovery]") {
  // The same over a network of 2 bytes/ms: 276 ms of copying. Half of what it carries in a step is
  // 120 bytes, so each layer takes a step of its own, behind a turnover of 10 ms: from 360 on four
  // times 130 ms. Then nothing is left to move: at 883 three pipelines, 80 ms a step, one of them.
  auto request = three_copies({0, 1});
  request.job.network_bytes_per_ms = 2;
  request.events = {{130, {}, {5}}};
  const auto played = replay_job(request).value();
  CHECK(played.iterations == 3 + 4 + 1);
  CHECK(played.time.reconfigure_ms == Approx(40 + 3));
  CHECK(played.time.copy_ms == 0);
  REQUIRE(played.events.size() == 1);
  const auto& event = played.events[0];
  CHECK(event.time_ms == Approx(880));
  CHECK(event.phases.warm_up_steps == 4);
  CHECK(event.phases.warm_up_bytes == 552);
  CHECK(event.phases.warm_up_ms == Approx(520));
  CHECK(event.copied_bytes == 0);
}

TEST_CASE("who is lost while its state comes takes a step with it", "[scheduler][recovery]") {
  // As above; it goes at 400, 30 ms into its first step. From 412 on two pipelines as before: 4.
  auto request = three_copies({0, 1});
  request.job.network_bytes_per_ms = 2;
  request.events = {{130, {}, {5}}, {400, {5}, {}}};
  const auto played = replay_job(request).value();
  CHECK(played.iterations == 3 + 4);
  CHECK(played.time.lost_work_ms == Approx(30));
  REQUIRE(played.events.size() == 1);
  CHECK(played.events[0].pipelines == std::vector<std::int64_t>{1, 1});
  CHECK(played.events[0].phases.warm_up_steps == 0);
}

TEST_CASE("what came during a step that was given up is not there", "[scheduler][recovery]") {
  // As above, but node 1 goes: at 400, in the first step during which something comes, all must be
  // copied to node 5; at 560, in the second one, the first layer's 120 bytes are there.
  for (const auto& [lost_ms, left] : {std::pair{400.0, 552}, std::pair{560.0, 552 - 120}}) {
    auto request = three_copies({0, 1});
    request.job.network_bytes_per_ms = 2;
    request.events = {{130, {}, {5}}, {lost_ms, {1}, {}}};
    const auto played = replay_job(request).value();
    REQUIRE(played.events.size() == 1);
    CHECK(played.events[0].pipelines == std::vector<std::int64_t>{1, 1});
    CHECK(played.events[0].copied_bytes == left);
    CHECK(played.events[0].phases.copy_ms == Approx(left / 2.0));
  }
}

TEST_CASE("a node is on its way from its start until it is ready, or goes",
          "[scheduler][recovery]") {
  const std::vector<NodeEvent> events{{10, {}, {7, 8}}, {12, {0, 7}, {}}, {30, {8}, {8}}};
  CHECK(arrivals_of({0}, events, 5) ==
        std::vector<NodeArrival>{{-5, 0, true}, {10, 12, false}, {10, 15, true}, {30, 35, true}});
  CHECK(arrivals_of({}, {{10, {}, {7}}, {15, {7}, {}}}, 5) ==
        std::vector<NodeArrival>{{10, 15, false}});
}

/// Three pipelines whose nodes took `opening_ms` to open their data, 80 ms a step. Node 2 goes at
/// 100, 20 ms into the second step, which is known at 105; `arrival` is on its way.
JobReplayRequest loss_with_arrival(double opening_ms, const NodeArrival& arrival) {
  auto request = three_copies({0, 1, 2});
  request.job.wait_for_nodes_ms = 10'000;
  request.arrivals = {{-opening_ms, 0, true}, arrival};
  request.events = {{100, {2}, {}}};
  if (arrival.is_ready) request.events.push_back({arrival.until_ms, {}, {5}});
  return request;
}

TEST_CASE("after a loss a replay waits for a node that is nearly there, and goes on with it",
          "[scheduler][recovery]") {
  // At 105 it has opened its data for 7 ms and is taken to need 10: ready at 108, with 5.52 ms of
  // copies, before the layout without it would be up. So it is waited for; it comes at 106. Then
  // 1 + 5.52 + 2 + 4 ms: from 118.52 on 80 ms a step, 11 of them, and the first.
  const auto played = replay_job(loss_with_arrival(8, {98, 106, true})).value();
  CHECK(played.iterations == 1 + 11);
  CHECK(played.time.lost_work_ms == Approx(20));
  CHECK(played.time.detection_ms == Approx(5));
  CHECK(played.time.stopped_ms == Approx(1));
  CHECK(played.time.total_ms() == Approx(1000));
  REQUIRE(played.events.size() == 1);
  const auto& event = played.events[0];
  CHECK(event.lost);
  CHECK(event.outcome == EventOutcome::reconfigured);
  CHECK(event.time_ms == Approx(106));
  CHECK(event.pipelines == std::vector<std::int64_t>{1, 1, 1});
  CHECK(event.copied_bytes == 552);
  CHECK(event.phases.detect_ms == Approx(5));
  CHECK(event.phases.waited_ms == Approx(1));
  CHECK(event.recovery_ms == Approx(6 + 12.52));
  CHECK(played.idle_share == Approx(2.0 / (100 * 3 + 6 * 2 + 894 * 3)));
}

TEST_CASE("a replay that waits for a node takes who was there before along",
          "[scheduler][recovery]") {
  // Node 6 is there from 95 on, and waits for the step's end when node 2 goes. From 105 on as
  // above: node 5 comes at 106, and both get 552 bytes.
  auto request = small_job({{{all_on(0)}, {all_on(1)}, {all_on(2)}}}, 4, 4);
  request.nodes = {0, 1, 2};
  request.job.wait_for_nodes_ms = 10'000;
  request.arrivals = {{-8, 0, true}, {98, 106, true}};
  request.events = {{95, {}, {6}}, {100, {2}, {}}, {106, {}, {5}}};
  const auto played = replay_job(request).value();
  REQUIRE(played.events.size() == 1);
  CHECK(played.events[0].time_ms == Approx(106));
  CHECK(played.events[0].pipelines == std::vector<std::int64_t>{1, 1, 1, 1});
  CHECK(played.events[0].copied_bytes == 2 * 552);
  CHECK(played.events[0].phases.waited_ms == Approx(1));
}

TEST_CASE("a replay goes on where the node that it waits for is gone, or late",
          "[scheduler][recovery]") {
  // Gone at 107, or not there at 108 (8 ms and a quarter from 98 on), as all others were; then
  // 1 + 2 + 4 ms.
  for (const auto& [opening_ms, arrival, over_ms] :
       {std::tuple{16.0, NodeArrival{98, 107, false}, 107.0},
        std::tuple{8.0, NodeArrival{98, 150, true}, 108.0}}) {
    const auto played = replay_job(loss_with_arrival(opening_ms, arrival)).value();
    REQUIRE(!played.events.empty());
    const auto& event = played.events[0];
    CHECK(event.time_ms == Approx(over_ms));
    CHECK(event.phases.waited_ms == Approx(over_ms - 105));
    CHECK(event.recovery_ms == Approx(over_ms - 100 + 7));
    CHECK(event.pipelines == std::vector<std::int64_t>{1, 1});
    CHECK(played.events.size() == (arrival.is_ready ? 2u : 1u));
  }
}

TEST_CASE("a replay goes on at once where a wait loses more, or is no wait",
          "[scheduler][recovery]") {
  const auto unchanged = [](JobReplayRequest request) {
    const auto waited = replay_job(request).value();
    request.arrivals.clear();
    const auto played = replay_job(request).value();
    CHECK(waited.iterations == played.iterations);
    CHECK(waited.time.stopped_ms == 0);
    REQUIRE(!waited.events.empty());
    CHECK(waited.events[0].phases.waited_ms == 0);
    CHECK(waited.events[0].time_ms == Approx(100));
  };
  unchanged(loss_with_arrival(800, {98, 898, true}));  // It takes too long.
  unchanged(loss_with_arrival(4, {98, 106, true}));    // It is late by then.
  unchanged(loss_with_arrival(8, {106, 114, true}));   // Nobody is welcomed yet.
  auto impatient = loss_with_arrival(8, {98, 106, true});
  impatient.job.wait_for_nodes_ms = 2;
  unchanged(std::move(impatient));
  auto unmeasured = loss_with_arrival(8, {98, 106, true});
  unmeasured.arrivals.erase(unmeasured.arrivals.begin());
  unchanged(std::move(unmeasured));
}

TEST_CASE("another loss while a replay waits is weighed anew, and is the same event",
          "[scheduler][recovery]") {
  // Node 5 comes at 120. Until 110 it is waited for 5 ms; then node 1 goes, which is known at 115,
  // and the rest is waited for, too.
  auto request = loss_with_arrival(32, {98, 120, true});
  request.events.insert(request.events.begin() + 1, NodeEvent{110, {1}, {}});
  const auto played = replay_job(request).value();
  REQUIRE(played.events.size() == 1);
  const auto& event = played.events[0];
  CHECK(event.time_ms == Approx(120));
  CHECK(event.pipelines == std::vector<std::int64_t>{1, 1});
  CHECK(event.phases.waited_ms == Approx(10));
  CHECK(event.recovery_ms == Approx(20 + 12.52));
  CHECK(played.time.detection_ms == Approx(10));
  CHECK(played.time.stopped_ms == Approx(10));
}

TEST_CASE("what nobody holds any more is begun again", "[scheduler][recovery]") {
  // One pipeline over two nodes, 240 ms a step, no copies. Node 1 goes at 300: nothing was saved,
  // so all is lost, and one node cannot hold the model. Node 2 comes at 500: restart 7, nothing to
  // load; from 507 on two steps.
  auto request = small_job(
      {{{{0, 0, {{"llm", LayerRange{0, 2}}}}, {1, 0, {{"llm", LayerRange{2, 4}}}}}}}, 2, 2);
  request.job.tolerance.lost_nodes = 0;
  request.nodes = {0, 1};
  request.events = {{300, {1}, {}}, {500, {}, {2}}};
  const auto played = replay_job(request).value();
  CHECK(played.iterations == 2);
  CHECK(played.repeated_iterations == 1);
  CHECK(played.time.stopped_ms == Approx(200));
  CHECK(played.time.reconfigure_ms == Approx(7));
  REQUIRE(played.events.size() == 2);
  CHECK(played.events[0].outcome == EventOutcome::stopped);
  CHECK(played.events[0].lost_iterations == 1);
  CHECK(played.events[1].outcome == EventOutcome::restarted);
}

TEST_CASE("too few nodes train on for a while, then save and stop", "[scheduler][recovery]") {
  // Two are needed. Node 1 goes at 130, 10 ms into the second step; from 142 on node 0 trains alone
  // with 240 ms a step, until 330; what it had begun is lost. It saves 552 bytes in 138 ms. Node 2
  // comes at 600: restart 7, and two pipelines load them in 276 ms, until 883.
  auto request = three_copies({0, 1});
  request.job.nodes_min = 2;
  request.job.wait_for_nodes_ms = 200;
  request.events = {{130, {1}, {}}, {600, {}, {2}}};
  const auto played = replay_job(request).value();
  CHECK(played.iterations == 1);
  CHECK(played.repeated_iterations == 0);
  CHECK(played.time.checkpoint_ms == Approx(138));
  CHECK(played.time.lost_work_ms == Approx(10 + 188));
  CHECK(played.time.stopped_ms == Approx(600 - 468));
  CHECK(played.time.copy_ms == Approx(276));
  REQUIRE(played.events.size() == 3);
  CHECK(played.events[0].outcome == EventOutcome::reconfigured);
  CHECK(played.events[1].outcome == EventOutcome::stopped);
  CHECK(played.events[1].time_ms == Approx(330));
  CHECK(played.events[2].outcome == EventOutcome::restarted);
}

TEST_CASE("a node that no layout needs waits", "[scheduler][recovery]") {
  auto request = three_copies({0, 1});
  request.job.spares = 1;
  request.job.tolerance.spare_room = Bytes{1};  // Nothing fits into it.
  request.events = {{130, {}, {2}}};
  const auto played = replay_job(request).value();
  CHECK(played.iterations == 8);
  REQUIRE(played.events.size() == 1);
  CHECK(played.events[0].outcome == EventOutcome::unaffected);
  CHECK(played.events[0].idle == 1);
  CHECK(played.idle_share == Approx(870.0 / 2870));
}

TEST_CASE("time adds up in any replay of a job", "[scheduler][recovery][property]") {
  const auto seed = GENERATE(range(0u, 40u));
  CAPTURE(seed);
  Random random(seed);
  auto request = three_copies({0, 1});
  request.job.tolerance.lost_nodes = seed % 3;
  request.job.network_bytes_per_ms = seed % 2 == 0 ? 2 : 0;
  request.job.nodes_min = 1 + seed % 2;
  request.job.wait_for_nodes_ms = 150;
  request.costs.checkpoint_iterations = seed % 4;
  request.duration_ms = 5000;
  request.arrivals = {{-60, 0, true}, {-60, 0, true}};
  RankList there{0, 1};
  std::int64_t next_id = 10;
  for (double time = 0; time < 5000; time += 1 + 300 * random.uniform()) {
    NodeEvent event{time, {}, {}};
    if (!there.empty() && random.uniform() < 0.5) {
      event.lost.push_back(there.back());
      there.pop_back();
    }
    if (there.size() < 3 && random.uniform() < 0.6) {
      event.joined.push_back(next_id++);
      there.push_back(event.joined.back());
      request.arrivals.push_back({time - 90 * random.uniform(), time, true});
    } else {
      request.arrivals.push_back({time - 40, time, false});
    }
    request.events.push_back(std::move(event));
  }
  const auto result = replay_job(request);
  REQUIRE(result.ok());
  const auto& played = result.value();
  CHECK(played.time.total_ms() == Approx(request.duration_ms));
  CHECK(played.samples == played.iterations * 12);
  std::int64_t lost = 0;
  for (const auto& event : played.events) {
    lost += event.lost_iterations;
    std::int64_t at_work = event.idle;
    for (const auto nodes : event.pipelines) at_work += nodes;
    CHECK(at_work == event.nodes);
    CHECK(event.phases.warm_up_steps <= 4);
    CHECK(event.phases.waited_ms <= request.job.wait_for_nodes_ms);
  }
  CHECK(lost == played.repeated_iterations);
}

TEST_CASE("a replay of a job that makes no sense is refused", "[scheduler][recovery][errors]") {
  const auto refused = [](auto change, const std::string& where) {
    auto request = three_copies({0, 1});
    change(request);
    const auto result = replay_job(request);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == Errc::invalid_argument);
    CHECK(result.error().where == where);
  };
  refused([](auto& r) { r.duration_ms = 0; }, "duration_ms");
  refused([](auto& r) { r.duration_ms = 1e12; }, "duration_ms");
  refused([](auto& r) { r.costs.turnover_ms = -1; }, "turnover_ms");
  refused([](auto& r) { r.nodes = {0, 1, 2, 3}; }, "events");
  refused([](auto& r) { r.events = {{10, {}, {0}}}; }, "events");
  refused([](auto& r) { r.events = {{10, {7}, {}}}; }, "events");
  refused([](auto& r) { r.events = {{10, {0}, {}}, {5, {1}, {}}}; }, "events");
  refused(
      [](auto& r) { r.job.step_ms = [](const ParallelPlan&) -> Result<double> { return 0.0; }; },
      "step_ms");
}

}  // namespace
}  // namespace troupe::scheduler
