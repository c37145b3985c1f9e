#include "scheduler/recovery/replay_failures.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <limits>
#include <set>

#include "runtime/vocabulary/random.hpp"
#include "scheduler/recovery/failure_events.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

RankList count_up(std::int64_t count) {
  RankList nodes;
  for (std::int64_t node = 0; node < count; ++node) nodes.push_back(node);
  return nodes;
}

// Four layers of 2 ms and 10 bytes on nodes of one GPU: a microbatch takes 8 ms on one node and
// (8 + 7 x 4) / 8 = 4.5 ms on two (Nb = 4 x nodes), as in what_if.test.cpp. Batch of 16.
ReplayRequest small_job(RecoveryMode mode, std::int64_t nodes) {
  TemplateRequest planned;
  planned.layers.assign(4, {1, 1, Bytes{1}, {}});
  planned.node_count = 4;
  planned.device_memory = Bytes{100};
  ReplayRequest made;
  made.mode = mode;
  made.model = {make_templates(planned).value(), std::vector<std::int64_t>(4, 10), 0, 16, 1};
  made.costs.loss = {5, 1, 0, 2, 0, false};
  made.costs.join = {0, 1, 0, 2, 0, false};
  made.costs.restart_ms = 7;
  made.costs.link_bytes_per_ms = 2;
  made.costs.storage_bytes_per_ms = 4;
  made.nodes = count_up(nodes);
  made.duration_ms = 1000;
  return made;
}

TEST_CASE("a live job loses an iteration and the time of its recovery", "[scheduler]") {
  // Best layout of 2 nodes: two pipelines of one (8 x 8 = 64 ms) or one of two (16 x 4.5 = 72 ms):
  // the first. Node 1 goes at 100: one iteration counts, 36 ms are lost. Detection 5, coordination
  // 3, nothing to copy: training goes on at 108, alone, with 16 x 8 = 128 ms an iteration.
  // 1000 - 108 = 892 = 6 x 128 + 124.
  auto request = small_job(RecoveryMode::live, 2);
  request.events = {{100, {1}, {}}};
  const auto result = replay_failures(request);
  REQUIRE(result.ok());
  const auto& played = result.value();
  CHECK(played.iterations == 7);
  CHECK(played.samples == 7 * 16);
  CHECK(played.samples_per_s == Approx(112));
  CHECK(played.time.lost_work_ms == Approx(36));
  CHECK(played.time.detection_ms == Approx(5));
  CHECK(played.time.reconfigure_ms == Approx(3));
  CHECK(played.time.copy_ms == 0);
  CHECK(played.time.training_ms == Approx(64 + 892));
  REQUIRE(played.events.size() == 1);
  CHECK(played.events[0].outcome == EventOutcome::reconfigured);
  CHECK(played.events[0].recovery_ms == Approx(8));
  CHECK(played.events[0].pipelines == std::vector<std::int64_t>{1});
  CHECK(played.events[0].iteration_ms == Approx(128));
}

TEST_CASE("a restarted job loses all since its checkpoint", "[scheduler]") {
  // The same, with a checkpoint every 2 iterations: 40 bytes at 4 bytes/ms take 10 ms (a node's
  // own 40 bytes over a link of 2 take 20: the longer counts). 64, 128, save until 148, 212, 276,
  // save until 296; node 1 goes at 400: iteration 5 ended at 360 and is lost with the 40 ms after
  // it. Detection 5, restart 7, load 20: until 432. Then 128 ms an iteration: 560, 688, save until
  // 708, 836, 964, save until 984, 16 ms more.
  auto request = small_job(RecoveryMode::restart, 2);
  request.costs.checkpoint_iterations = 2;
  request.events = {{400, {1}, {}}};
  const auto result = replay_failures(request);
  REQUIRE(result.ok());
  const auto& played = result.value();
  CHECK(played.iterations == 8);
  CHECK(played.repeated_iterations == 1);
  CHECK(played.time.lost_work_ms == Approx(104));
  CHECK(played.time.checkpoint_ms == Approx(80));
  CHECK(played.time.reconfigure_ms == Approx(7));
  CHECK(played.time.copy_ms == Approx(20));
  CHECK(played.time.training_ms == Approx(256 + 512 + 16));
  REQUIRE(played.events.size() == 1);
  CHECK(played.events[0].outcome == EventOutcome::restarted);
  CHECK(played.events[0].lost_iterations == 1);
}

TEST_CASE("a node's own way to the storage bounds saves and loads", "[scheduler]") {
  // The job above, but a node moves 1 byte/ms to or from the storage: its 40 bytes take 40 ms where
  // its network took 20. 64, 128, save until 168, 232, 296, save until 336; node 1 goes at 400 with
  // the 64 ms of iteration 5, which has just ended. Detection 5, restart 7, load 40: until 452.
  // Then 580, 708, save until 748, 876, and 124 ms of the next one.
  auto request = small_job(RecoveryMode::restart, 2);
  request.costs.checkpoint_iterations = 2;
  request.costs.node_storage_bytes_per_ms = 1;
  request.events = {{400, {1}, {}}};
  const auto result = replay_failures(request);
  REQUIRE(result.ok());
  CHECK(result.value().iterations == 7);
  CHECK(result.value().time.lost_work_ms == Approx(64));
  CHECK(result.value().time.checkpoint_ms == Approx(120));
  CHECK(result.value().time.copy_ms == Approx(40));
}

TEST_CASE("nodes that join wait for the end of the iteration", "[scheduler]") {
  // One node, 128 ms an iteration. Node 1 joins at 10: at 128 it becomes a pipeline of its own,
  // after 3 ms and a copy of 40 bytes at 2 bytes/ms: training goes on at 151 with 64 ms.
  // 1000 - 151 = 849 = 13 x 64 + 17.
  auto request = small_job(RecoveryMode::live, 1);
  request.events = {{10, {}, {1}}};
  const auto result = replay_failures(request);
  REQUIRE(result.ok());
  CHECK(result.value().iterations == 14);
  CHECK(result.value().time.lost_work_ms == 0);
  CHECK(result.value().time.copy_ms == Approx(20));
  REQUIRE(result.value().events.size() == 1);
  CHECK(result.value().events[0].time_ms == Approx(128));
  CHECK(result.value().events[0].copied_bytes == 40);
}

TEST_CASE("an event costs what its kind costs, phase by phase", "[scheduler]") {
  // As above, but a join decides for 4 ms, copies for 10 whatever moves, builds for 5 and loses 6
  // of its first step: from 128 training goes on at 153. Then node 1 is lost at 200, 47 ms into a
  // step: 5 + 1 + 2 until 208.
  auto request = small_job(RecoveryMode::live, 1);
  request.costs.join = {0, 4, 10, 5, 6, true};
  request.events = {{10, {}, {1}}, {200, {1}, {}}};
  const auto result = replay_failures(request);
  REQUIRE(result.ok());
  const auto& events = result.value().events;
  REQUIRE(events.size() == 2);
  CHECK_FALSE(events[0].lost);
  CHECK(events[0].recovery_ms == Approx(25));
  CHECK(events[0].phases.decide_ms == 4);
  CHECK(events[0].phases.copy_ms == 10);
  CHECK(events[0].phases.rebuild_ms == 5);
  CHECK(events[0].phases.replay_ms == Approx(64 + 6));
  CHECK(events[1].lost);
  CHECK(events[1].lost_work_ms == Approx(47));
  CHECK(events[1].recovery_ms == Approx(8));
  CHECK(events[1].phases.detect_ms == 5);
  CHECK(events[1].phases.copy_ms == 0);
  CHECK(events[1].phases.replay_ms == Approx(128));
  // 1000 - 208 = 6 x 128 + 24, and the one before.
  CHECK(result.value().iterations == 7);
}

TEST_CASE("a node joins once it has started", "[scheduler]") {
  const std::vector<NodeEvent> events{{10, {}, {7, 8}}, {12, {0, 7}, {}}, {30, {8}, {8}}};
  // Node 7 goes before it is ready; 8 was ready at 15, goes at 30 and is back at 35.
  CHECK(after_start(events, 5) ==
        std::vector<NodeEvent>{{12, {0}, {}}, {15, {}, {8}}, {30, {8}, {}}, {35, {}, {8}}});
  CHECK(after_start(events, 0) == events);
  // One that goes in the moment it is ready never joined.
  CHECK(after_start({{10, {}, {7}}, {15, {7}, {}}}, 5).empty());
}

TEST_CASE("with too few nodes a job stops, saved, and resumes when enough are back",
          "[scheduler]") {
  // f = 1 needs two nodes. Node 1 goes at 100: detection 5, node 0 saves 40 bytes alone in 20 ms,
  // then it stands still until 300. Restart 7, load: two pipelines read 80 bytes at 4: 20 ms. From
  // 327 on 64 ms an iteration: 673 = 10 x 64 + 33.
  auto request = small_job(RecoveryMode::live, 2);
  request.model.fault_tolerance = 1;
  request.events = {{100, {1}, {}}, {300, {}, {2}}};
  const auto result = replay_failures(request);
  REQUIRE(result.ok());
  const auto& played = result.value();
  CHECK(played.iterations == 11);
  CHECK(played.repeated_iterations == 0);
  CHECK(played.time.stopped_ms == Approx(175));
  CHECK(played.time.checkpoint_ms == Approx(20));
  CHECK(played.time.reconfigure_ms == Approx(7));
  REQUIRE(played.events.size() == 2);
  CHECK(played.events[0].outcome == EventOutcome::stopped);
  CHECK(played.events[1].outcome == EventOutcome::restarted);
  // Idle while stopped: 175 ms of node 0, of 1000 ms of it, 100 of node 1 and 700 of node 2.
  CHECK(played.idle_share == Approx(175.0 / 1800));
}

TEST_CASE("a layer without holder sends a live job back to its checkpoint", "[scheduler]") {
  // Templates of two nodes only: pipelines [0, 1] and [2, 3], 8 x 4.5 = 36 ms. Their first nodes go
  // at once; both held the same layers, and nobody else does.
  auto request = small_job(RecoveryMode::live, 4);
  std::erase_if(request.model.templates.templates,
                [](const auto& made) { return made.node_count != 2; });
  request.model.templates.min_nodes = 2;
  request.events = {{100, {0, 2}, {}}};
  const auto result = replay_failures(request);
  REQUIRE(result.ok());
  const auto& event = result.value().events.at(0);
  CHECK(event.outcome == EventOutcome::restarted);
  CHECK(event.lost_iterations == 2);  // 36 ms each; never saved, so from the beginning.
  CHECK(event.copied_bytes == 0);
  CHECK(result.value().repeated_iterations == 2);
}

TEST_CASE("a failure during a recovery begins it anew", "[scheduler]") {
  // Three pipelines of one node. Node 2 goes at 100 and node 1 at 104, one ms before the first loss
  // was even known: 4 ms of detection, then 5 again.
  auto request = small_job(RecoveryMode::live, 3);
  request.events = {{100, {2}, {}}, {104, {1}, {}}};
  const auto result = replay_failures(request);
  REQUIRE(result.ok());
  CHECK(result.value().time.detection_ms == Approx(9));
  CHECK(result.value().time.reconfigure_ms == Approx(3));
}

TEST_CASE("a uniform layout leaves what does not fit idle", "[scheduler]") {
  auto request = small_job(RecoveryMode::restart, 3);
  std::erase_if(request.model.templates.templates,
                [](const auto& made) { return made.node_count != 2; });
  request.model.templates.min_nodes = 2;
  // The idle node is not missed.
  request.events = {{500, {2}, {}}};
  const auto result = replay_failures(request);
  REQUIRE(result.ok());
  CHECK(result.value().idle_share == Approx(500.0 / 2500));
  CHECK(result.value().time.lost_work_ms == 0);
  CHECK(result.value().events.at(0).outcome == EventOutcome::unaffected);
}

// Nodes leave and come, a few at a time.
std::vector<NodeEvent> random_events(std::uint64_t seed, RankList nodes, double duration_ms) {
  Random random(seed);
  std::vector<NodeEvent> events;
  std::int64_t next_id = 100;
  RankList gone;
  for (double time = 0; time < duration_ms; time += 1 + 120 * random.uniform()) {
    NodeEvent event{time, {}, {}};
    for (std::size_t i = 0; i < nodes.size();)
      if (random.uniform() < 0.2) {
        event.lost.push_back(nodes[i]);
        gone.push_back(nodes[i]);
        nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    while (nodes.size() < 8 && random.uniform() < 0.5) {
      // Sometimes a node that was there before, perhaps lost in this very event.
      const bool old = !gone.empty() && random.uniform() < 0.5;
      const auto node = old ? gone.back() : next_id++;
      if (old) gone.pop_back();
      event.joined.push_back(node);
      nodes.push_back(node);
    }
    events.push_back(std::move(event));
  }
  return events;
}

TEST_CASE("time adds up and samples count once, whatever happens", "[scheduler][property]") {
  const auto seed = GENERATE(range(0u, 60u));
  const auto mode = GENERATE(RecoveryMode::live, RecoveryMode::restart);
  CAPTURE(seed, to_string(mode));
  auto request = small_job(mode, 1 + seed % 4);
  request.model.fault_tolerance = seed % 3 == 0 ? 1 : 0;
  request.costs.checkpoint_iterations = seed % 4;
  request.duration_ms = 5000;
  request.events = random_events(seed, request.nodes, request.duration_ms);
  const auto result = replay_failures(request);
  REQUIRE(result.ok());
  const auto& played = result.value();
  CHECK(played.time.total_ms() == Approx(request.duration_ms));
  CHECK(played.samples == played.iterations * 16);
  std::int64_t lost = 0;
  for (const auto& event : played.events) {
    lost += event.lost_iterations;
    CHECK(event.lost_iterations >= 0);
    CHECK(event.recovery_ms >= 0);
    std::int64_t at_work = event.idle;
    for (const auto nodes : event.pipelines) at_work += nodes;
    CHECK(at_work == event.nodes);
    if (event.outcome == EventOutcome::stopped || event.outcome == EventOutcome::waiting)
      CHECK(event.pipelines.empty());
  }
  CHECK(lost == played.repeated_iterations);
  CHECK(played.iterations >= 0);
  for (const double ms : {played.time.training_ms, played.time.lost_work_ms,
                          played.time.checkpoint_ms, played.time.stopped_ms})
    CHECK(ms >= -1e-6);
}

TEST_CASE("more failures never raise the throughput", "[scheduler][property]") {
  // The same nodes fail in the same order, four times as often in each series. Every series lasts
  // six periods of its own, so that each number of nodes is there for the same share of its time.
  const auto seed = GENERATE(range(0u, 20u));
  const auto mode = GENERATE(RecoveryMode::live, RecoveryMode::restart);
  CAPTURE(seed, to_string(mode));
  double faster = std::numeric_limits<double>::infinity();
  for (const double period : {32'000.0, 8'000.0, 2'000.0, 500.0}) {
    auto request = small_job(mode, 8);
    request.costs.checkpoint_iterations = 10;
    request.events = periodic_failures(8, 5, period, seed);
    request.duration_ms = 6 * period;
    const auto result = replay_failures(request);
    REQUIRE(result.ok());
    CHECK(result.value().samples_per_s <= faster);
    faster = result.value().samples_per_s;
  }
}

TEST_CASE("recovery that costs nothing loses but the unfinished iterations",
          "[scheduler][property]") {
  const auto seed = GENERATE(range(0u, 20u));
  auto request = small_job(RecoveryMode::live, 6);
  request.costs.loss = {};
  request.costs.link_bytes_per_ms = 1e12;
  request.events = periodic_failures(6, 4, 777, seed);
  request.duration_ms = 5 * 777;
  const auto result = replay_failures(request);
  REQUIRE(result.ok());
  double most = 0;
  for (const auto& event : result.value().events) {
    most += event.iteration_ms;  // Iterations only become longer.
    CHECK(event.lost_iterations == 0);
  }
  CHECK(result.value().time.lost_work_ms <= most);
  CHECK(result.value().time.training_ms + result.value().time.lost_work_ms ==
        Approx(request.duration_ms));
}

TEST_CASE("counts of nodes become events", "[scheduler]") {
  const auto events = events_of_counts({{0, 2}, {10, 2}, {20, 4}, {30, 1}}, 5);
  REQUIRE(events.size() == 2);
  CHECK(events[0] == NodeEvent{20, {}, {2, 3}});
  CHECK(events[1].lost.size() == 3);
  CHECK(events[1].time_ms == 30);
  CHECK((events_of_counts({{0, 9}, {1, 3}}, 7) == events_of_counts({{0, 9}, {1, 3}}, 7)));
}

TEST_CASE("random failures take each node once, with the spans of their mean",
          "[scheduler][property]") {
  // 2,000 exponential spans: mean and standard deviation are both 50 to about 1.1 each (one sigma);
  // a fixed interval would have no deviation at all.
  const auto seed = GENERATE(range(0u, 5u));
  CAPTURE(seed);
  const auto events = random_failures(2000, 2000, 50, seed);
  REQUIRE(events.size() == 2000);
  std::set<std::int64_t> nodes;
  double last = 0, squares = 0;
  for (const auto& event : events) {
    REQUIRE(event.lost.size() == 1);
    nodes.insert(event.lost[0]);
    CHECK(event.time_ms >= last);
    squares += (event.time_ms - last - 50) * (event.time_ms - last - 50);
    last = event.time_ms;
  }
  CHECK(nodes.size() == 2000);
  CHECK(last / 2000 == Approx(50).margin(6));
  CHECK(std::sqrt(squares / 2000) == Approx(50).margin(8));
  CHECK(random_failures(2000, 2000, 50, seed) == events);
}

TEST_CASE("a replay that makes no sense is refused", "[scheduler][errors]") {
  const auto refused = [](auto change, const std::string& where) {
    auto request = small_job(RecoveryMode::live, 2);
    change(request);
    const auto result = replay_failures(request);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == Errc::invalid_argument);
    CHECK(result.error().where == where);
  };
  const double nan = std::nan("");
  refused([&](auto& r) { r.duration_ms = 0; }, "duration_ms");
  refused([&](auto& r) { r.duration_ms = 1e12; }, "duration_ms");
  refused([&](auto& r) { r.costs.loss.detect_ms = nan; }, "detect_ms");
  refused([&](auto& r) { r.costs.loss.decide_ms = -1; }, "decide_ms");
  refused([&](auto& r) { r.costs.join.copy_ms = -1; }, "copy_ms");
  refused([&](auto& r) { r.costs.join.rebuild_ms = nan; }, "rebuild_ms");
  refused([&](auto& r) { r.costs.join.first_step_ms = -1; }, "first_step_ms");
  refused([&](auto& r) { r.costs.turnover_ms = -1; }, "turnover_ms");
  refused([&](auto& r) { r.costs.restart_ms = -1; }, "restart_ms");
  refused([&](auto& r) { r.costs.link_bytes_per_ms = 0; }, "link_bytes_per_ms");
  refused([&](auto& r) { r.costs.storage_bytes_per_ms = nan; }, "storage_bytes_per_ms");
  refused([&](auto& r) { r.costs.node_storage_bytes_per_ms = -1; }, "node_storage_bytes_per_ms");
  refused([&](auto& r) { r.costs.checkpoint_iterations = -1; }, "checkpoint_iterations");
  refused([&](auto& r) { r.model.templates.templates.clear(); }, "templates");
  refused([&](auto& r) { r.model.layer_bytes.pop_back(); }, "layer_bytes");
  refused([&](auto& r) { r.model.layer_bytes[0] = -1; }, "layer_bytes");
  refused([&](auto& r) { r.model.microbatch_size = 3; }, "global_batch");
  refused([&](auto& r) { r.model.fault_tolerance = -1; }, "fault_tolerance");
  refused([&](auto& r) { r.nodes = {0, 0}; }, "nodes");
  refused([&](auto& r) { r.events = {{10, {7}, {}}}; }, "events");
  refused([&](auto& r) { r.events = {{10, {}, {1}}}; }, "events");
  refused([&](auto& r) { r.events = {{10, {0}, {}}, {5, {1}, {}}}; }, "events");
}

}  // namespace
}  // namespace troupe::scheduler
