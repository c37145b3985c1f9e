#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_records.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <string>

#include "engine/iteration/reports.hpp"
#include "tests/actors/head_fixture.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// From step 2 on the encoder stays on node 0 and the llm goes to node 2; nodes 1 and 3 idle.
void move_llm(job::Job& job) {
  job.debug.layouts = {{2, {{{{0, 0, {{"vision", {}}}}, {2, 0, {{"llm", {}}}}}}}}};
}

TEST_CASE("a layout waits for the steps before it and comes up when all nodes have fetched",
          "[actors]") {
  Head head(4, move_llm);
  head.start_training();
  head.plan(0);
  CHECK(head.scheduler.asked == 1);  // Step 2 belongs to the other layout.
  CHECK(head.seen[0].configurations.size() == 1);
  head.run_step(1);
  for (const NodeSeen& node : head.seen) {
    REQUIRE(node.configurations.size() == 2);
    CHECK(node.configurations[1].epoch_number == 2);
    CHECK(node.configurations[1].plan == head.resources.later[0]);
  }
  CHECK(head.scheduler.asked == 1);

  for (std::size_t id = 0; id < 3; ++id)
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  head.tell(fetched_atom::value, NodeId{3}, EpochNumber{1}, 0.0);  // Of an older layout.
  for (const NodeSeen& node : head.seen) CHECK(node.settled.size() == 1);
  head.tell(fetched_atom::value, NodeId{3}, EpochNumber{2}, 0.0);
  for (const NodeSeen& node : head.seen) CHECK(node.settled.back() == 2);
  CHECK(head.scheduler.begins.size() == 1);
  for (std::size_t id = 0; id < 4; ++id) head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  CHECK(head.scheduler.begins.size() == 2);
  CHECK(head.scheduler.asked == 2);
}

TEST_CASE("a change of layout is an event with its phases, the start is none", "[actors]") {
  Head head(4, move_llm);
  head.start_training();
  head.plan(0);
  head.run_step(1);
  CHECK(head.recorder.events.empty());
  head.system.pass(200ms);
  head.tell(fetched_atom::value, NodeId{3}, EpochNumber{1}, 190.0);  // Of an older layout.
  const double connect_ms[] = {10, 60, 30, 0};
  for (std::size_t id = 0; id < 4; ++id)
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, connect_ms[id]);
  head.system.pass(100ms);
  for (std::size_t id = 0; id < 4; ++id) head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  REQUIRE(head.recorder.events.size() == 1);
  const auto& event = head.recorder.events[0];
  CHECK(event.kind == "layout");
  CHECK(event.step == 2);
  CHECK(event.generation == 2);
  CHECK((event.nodes == std::vector<NodeId>{NodeId{0}, NodeId{2}}));
  CHECK(event.why == "1 pipeline of 2 stages");
  CHECK(event.connect_ms == 60);  // The slowest node's, of the 200 ms in all.
  CHECK(event.copy_ms == 140);
  CHECK(event.rebuild_ms == 100);
  CHECK(event.copy_bytes > 0);
  CHECK(event.tolerance_left == 0);
}

TEST_CASE("connecting takes no longer than the whole until all have fetched", "[actors]") {
  LayoutChange change;
  change.begun = Time{} + 1s;
  change.fetched = change.begun + 40ms;
  change.connect_ms = 41;  // As a node's own clock says.
  observe::RunEvent event;
  add_copies(change, event);
  CHECK(event.connect_ms == 40);
  CHECK(event.copy_ms == 0);
}

TEST_CASE("senders are the nodes that give state to others", "[actors]") {
  const DeviceSlot a{NodeId{0}, 0}, b{NodeId{0}, 1}, c{NodeId{1}, 0}, d{NodeId{2}, 0};
  LayoutChange change;
  observe::RunEvent event;
  add_copies(change, event);
  CHECK(event.senders == 0);
  const auto move = [](DeviceSlot from, DeviceSlot to) { return StateMove{{}, from, to}; };
  // Both devices of node 0 send, to others and to each other; node 2 has something of the seed.
  for (const auto& [from, to] : {std::pair{a, c}, std::pair{b, d}, std::pair{a, b},
                                 std::pair{DeviceSlot{}, d}, std::pair{d, c}})
    change.moves.moves.push_back(move(from, to));
  add_copies(change, event);
  CHECK(event.senders == 2);  // Nodes 0 and 2.
}

TEST_CASE("as many nodes may be lost as the rarest shard has others", "[actors]") {
  const auto shard = [](std::vector<DeviceSlot> holders) { return Shard{{}, std::move(holders)}; };
  const DeviceSlot a{NodeId{0}, 0}, b{NodeId{0}, 1}, c{NodeId{1}, 0}, d{NodeId{2}, 0};
  CHECK(tolerance_of({shard({a, c, d}), shard({a, c})}) == 1);
  CHECK(tolerance_of({shard({a, b})}) == 0);  // Both are lost with their node.
  CHECK(tolerance_of({}) == 0);
}

TEST_CASE("a layout that is due behind a batch without samples is planned for once", "[actors]") {
  Head head(4, move_llm);
  head.start_training();
  engine::PlannedBatch empty;
  empty.iteration.step = 1;
  empty.iteration.epoch_number = 1;
  head.tell(std::make_shared<const engine::PlannedBatch>(empty));
  CHECK(head.scheduler.asked == 1);
  REQUIRE(head.seen[0].configurations.size() == 2);
  head.bring_up(2);
  CHECK(head.scheduler.asked == 2);
  head.plan(1);
  CHECK(head.seen[0].plans.size() == 1);
}

TEST_CASE("a plan for a layout that is gone is dropped", "[actors]") {
  Head head(4, move_llm);
  head.start_training();
  head.plan(0);
  head.run_step(1);
  head.bring_up(2);
  engine::PlannedBatch stale;
  stale.batch = 1;
  stale.iteration.step = 2;
  stale.iteration.epoch_number = 1;
  stale.iteration.samples.resize(1);
  head.tell(std::make_shared<const engine::PlannedBatch>(stale));
  CHECK(head.seen[0].plans.size() == 1);
  head.plan(1);
  CHECK(head.seen[0].plans.size() == 2);
}

TEST_CASE("each node hears of its own moves, and state comes from who has it", "[actors]") {
  Head head(4, move_llm);
  head.start_training();
  for (const NodeSeen& node : head.seen)
    for (const StateMove& move : node.configurations.at(0).moves) CHECK(move.is_from_seed());
  head.plan(0);
  head.run_step(1);
  // Node 2 had the first half of the llm, with nodes 1 and 3; now it lacks the second.
  CHECK(head.seen[0].configurations[1].moves.empty());
  const auto& moves = head.seen[2].configurations[1].moves;
  REQUIRE_FALSE(moves.empty());
  for (const StateMove& move : moves) {
    CHECK(move.to == DeviceSlot{NodeId{2}, 0});
    CHECK((move.from.node == NodeId{1} || move.from.node == NodeId{3}));
    const auto& info = head.resources.setup.parameters[move.piece.parameter.index()];
    CHECK(info.uses.front().layer >= 2);
  }
  const std::size_t given =
      head.seen[1].configurations[1].moves.size() + head.seen[3].configurations[1].moves.size();
  CHECK(given == moves.size());
  // Both of the nodes that have it send.
  CHECK_FALSE(head.seen[1].configurations[1].moves.empty());
  CHECK_FALSE(head.seen[3].configurations[1].moves.empty());
}

TEST_CASE("nodes without a stage idle until they are needed, and are asked for what they keep",
          "[actors]") {
  Head head(2, move_llm);
  head.start_training();
  head.plan(0);
  head.run_step(1);
  head.bring_up(2);
  head.plan(1);
  CHECK(head.seen[0].plans.size() == 2);
  CHECK(head.seen[1].plans.size() == 1);
  CHECK(head.seen[2].plans.size() == 2);
  for (std::size_t device = 0; device < 2; ++device) head.prepared(device, 2, 1, 1, 2);
  CHECK(head.seen[0].decisions.size() == 2);
  CHECK(head.seen[1].decisions.size() == 1);
  for (std::size_t device = 0; device < 2; ++device) head.finished(device, 2, 2);
  CHECK(head.recorder.steps.size() == 2);
  for (const NodeSeen& node : head.seen) CHECK(node.collections.size() == 1);
  for (std::int32_t id = 0; id < 3; ++id) head.tell(Offers{NodeId{id}, 2, {}});
  CHECK(head.recorder.collections.empty());
  head.tell(Offers{NodeId{3}, 2, {}});
  CHECK(head.recorder.collections.size() == 1);
}

TEST_CASE("a layout that does not fit beside the present one is left, and training goes on",
          "[actors][errors]") {
  // Nodes 0 and 1 change places: each has room for either half, not for both.
  Head head(4, [](job::Job& job) {
    no_room_beside(job);
    auto pipelines = job.parallel.layout.pipelines;
    std::swap(pipelines[0][0].node, pipelines[0][1].node);
    job.debug.layouts = {{2, {pipelines}}};
  });
  head.start_training();
  head.plan(0);
  head.run_step(1);
  CHECK(head.seen[0].configurations.size() == 1);
  CHECK(head.scheduler.asked == 2);
  head.plan(1);
  CHECK(head.scheduler.asked == 3);  // It is not tried again.
  CHECK_FALSE(head.ended);
}

TEST_CASE("a layout that does not come up in time ends the job by name", "[actors][errors]") {
  Head head(4, move_llm);
  head.start_training();
  head.plan(0);
  head.run_step(1);
  for (const std::size_t id : {0, 1})
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  head.system.pass(2400ms);
  CHECK(head.seen[0].saves.size() == 1);  // Of what they had before.
  head.system.pass(8s);
  REQUIRE(head.ended);
  CHECK(says(head.ended->message,
             "not set up within 2 s; still at it: node 2 (host, pid 102), node 3 (host, pid 103)"));
}

// Window: a layout does not come up
TEST_CASE("a stage that is made without end is named where its layout does not come up",
          "[actors][errors]") {
  const std::string work =
      "the work does not return, as layout 1 comes up on device 1, `make` of stage 1 (llm layers 0 "
      "to 3) by stage kind 'endless'";
  Head head(9, one_pipeline);
  head.join_all();
  for (const std::size_t node : {0u, 1u, 2u, 3u})
    head.tell(fetched_atom::value, NodeId{node}, EpochNumber{1}, 0.0);
  for (const std::size_t node : {0u, 2u, 3u})
    head.tell(applied_atom::value, NodeId{node}, EpochNumber{1});
  const std::int64_t step = GENERATE(0, 1);
  engine::LongWorks told;
  told.works.push_back({DeviceId{1}, 1, {step, 1}});
  told.works.back().work.error = {Errc::timed_out, work, {}, "look into it"};
  head.tell(NodeId{1}, told);
  head.system.pass(2300ms);
  head.leave({0, 1, 2, 3});
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(says(head.ended->message,
             "the model was not set up within 2 s; still at it: node 1 (host, pid 101); " + work));
  // Of a step of the layout before another time is the one to raise.
  CHECK(says(head.ended->message,
             std::string(" s so far); nothing is saved: no step was finished\n  fix: ") +
                 (step == 0 ? "look into it" : "look at the load and memory")));
}

}  // namespace
}  // namespace troupe::actors
