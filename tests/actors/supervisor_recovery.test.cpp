#include "actors/supervisor/supervisor_recovery.hpp"

#include <catch2/generators/catch_generators.hpp>

#include <csignal>
#include <utility>

#include "tests/actors/recovering_head.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

// Window: forward, backward, sums
TEST_CASE("a step that is not decided is given up and trained again by who is left",
          "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  head.run_step(1);
  head.plan(1);
  for (const std::size_t device : {0u, 2u, 3u}) head.prepared(device, 2, 1, 1);
  recovering.lose(1);
  CHECK_FALSE(head.ended);
  CHECK(head.seen[1].configurations.size() == 1);
  for (const std::size_t id : {0u, 2u, 3u}) {
    REQUIRE(head.seen[id].configurations.size() == 2);
    const Configuration& next = head.seen[id].configurations[1];
    CHECK(next.epoch_number == 2);
    CHECK((next.plan.nodes() == std::set<NodeId>{NodeId{2}, NodeId{3}}));
    for (const NodeReady& node : next.nodes) CHECK(node.node != NodeId{1});
    CHECK(head.seen[id].decisions.size() == 1);
  }
  // Should the head be killed now, the next one finds word of it.
  REQUIRE(head.recorder.begun.size() == 1);
  CHECK(head.recorder.begun[0].kind == "lost");
  CHECK((head.recorder.begun[0].nodes == std::vector<NodeId>{NodeId{1}}));
  CHECK(head.recorder.begun[0].step == 2);
  CHECK(head.recorder.begun[0].generation == 2);
  head.prepared(1, 2, 1, 1);  // Said before it died; nothing comes of it.
  CHECK(head.seen[0].decisions.size() == 1);
  recovering.bring_up(2, {0, 2, 3});
  REQUIRE(head.scheduler.next.size() == 2);
  CHECK(head.scheduler.next[1] == 1);  // The second batch.
  CHECK(head.recorder.events.empty());
  head.system.pass(40ms);
  recovering.run_step(2, 2, 2);
  CHECK(recovering.recorded() == std::vector<std::int64_t>{1, 2});
  CHECK(head.recorder.steps[1]->metrics.nodes == 3);
  CHECK(head.recorder.steps[1]->metrics.epoch_number == 2);
  REQUIRE(head.recorder.events.size() == 1);
  const observe::RunEvent& event = head.recorder.events[0];
  CHECK(event.kind == "lost");
  CHECK((event.nodes == std::vector<NodeId>{NodeId{1}}));
  CHECK(event.step == 2);
  CHECK(event.generation == 2);
  CHECK(says(event.why, "was killed by signal 9"));
  CHECK(event.decode_ms >= 40);  // Its samples were waited for.
  CHECK(event.tolerance_left == 0);
}

// Window: between COMMIT and the last optimizer step
TEST_CASE("a step whose COMMIT is known is finished before anything changes",
          "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  head.plan(1);  // Waits in the devices' queues.
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 1, 1, 1);
  REQUIRE(head.seen[0].decisions.size() == 1);
  SECTION("who is left is still at it") {
    head.finished(0, 1);
    recovering.lose(1);
    CHECK(head.seen[0].configurations.size() == 1);
    head.finished(2, 1);
    CHECK(recovering.recorded().empty());
    head.finished(3, 1);
  }
  SECTION("only the lost node was still at it") {
    for (const std::size_t device : {0u, 2u, 3u}) head.finished(device, 1);
    CHECK(recovering.recorded().empty());
    recovering.lose(1);
  }
  // Window: another loss is dealt with
  SECTION("two are lost") {
    recovering.lose(0);
    head.finished(2, 1);
    recovering.lose(1);
    CHECK(head.seen[2].configurations.size() == 1);
    head.finished(3, 1);
    CHECK((head.seen[2].configurations.back().plan.nodes() ==
           std::set<NodeId>{NodeId{2}, NodeId{3}}));
  }
  CHECK(recovering.recorded() == std::vector<std::int64_t>{1});
  REQUIRE(head.seen[2].configurations.size() == 2);
  for (const std::size_t id : {0u, 2u, 3u})
    if (head.seen[id].configurations.size() == 2) recovering.bring_up(2, {id});
  CHECK(head.scheduler.next.back() == 1);
  recovering.run_step(2, 2, 2);
  CHECK(recovering.recorded() == std::vector<std::int64_t>{1, 2});
}

// Window: between PREPARED and COMMIT
TEST_CASE("nothing is decided while a loss is dealt with", "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  head.plan(1);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 1, 1, 1);
  for (std::size_t device = 0; device < 3; ++device) head.finished(device, 1);
  // Everybody but device 3 has run ahead; node 1 dies with its word on the next step on its way.
  for (std::size_t device = 0; device < 3; ++device) head.prepared(device, 2, 1, 1);
  recovering.lose(1);
  head.prepared(3, 2, 1, 1);
  CHECK(head.seen[0].decisions.size() == 1);
  head.finished(3, 1);
  CHECK(head.seen[0].configurations.size() == 2);
}

// Window: a layout is being fetched
// Window: another loss is dealt with
TEST_CASE("a node that is lost while a layout comes up leads to another one",
          "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  recovering.lose(1);
  head.tell(fetched_atom::value, NodeId{0}, EpochNumber{2}, 0.0);
  head.tell(fetched_atom::value, NodeId{2}, EpochNumber{2}, 0.0);
  recovering.lose(0);
  CHECK_FALSE(head.ended);
  CHECK(head.seen[2].configurations.back().epoch_number == 3);
  head.tell(fetched_atom::value, NodeId{3}, EpochNumber{2}, 0.0);  // Of the layout before.
  CHECK(head.seen[2].settled.size() == 1);
  recovering.bring_up(3, {2, 3});
  head.plan(0);
  for (std::size_t device = 0; device < 2; ++device) head.prepared(device, 1, 1, 1, 3);
  for (std::size_t device = 0; device < 2; ++device) head.finished(device, 1, 3);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{1}, NodeId{0}}));
  CHECK(head.recorder.events[0].why ==
        "node 1 (host, pid 101) was lost: was killed by signal 9; "
        "node 0 (host, pid 100) was lost: was killed by signal 9");
}

// Window: all were told to turn over
TEST_CASE("state lies where a layout wants it once all were told to turn over to it",
          "[actors][recovery]") {
  // From step 2 on node 2 has all of the llm, which nodes 1 and 3 had.
  RecoveringHead recovering(9, [](job::Job& job) {
    job.debug.layouts = {{2, {{{{0, 0, {{"vision", {}}}}, {2, 0, {{"llm", {}}}}}}}}};
  });
  Head& head = recovering.head;
  head.plan(0);
  head.run_step(1);
  const bool is_told = GENERATE(true, false);
  for (std::size_t id = 0; id < (is_told ? 4u : 3u); ++id)
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  recovering.lose(3);
  CHECK_FALSE(head.ended);
  recovering.lose(1);
  // Until then half of the llm is with the nodes that are lost.
  if (is_told) {
    REQUIRE(head.seen[2].configurations.back().epoch_number == 4);
    CHECK(head.seen[2].configurations.back().moves.empty());
  } else {
    head.leave({0, 2});  // Who would have saved what is left.
    head.system.pass(400ms);
    REQUIRE(head.ended);
    CHECK(says(head.ended->message, "no other node has"));
  }
}

TEST_CASE("the loss of a last copy ends the job and names it", "[actors][recovery][errors]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  recovering.lose(1);
  recovering.bring_up(2, {0, 2, 3});
  recovering.lose(3);
  head.leave({0, 2});
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, "node 3 (host, pid 103) was lost: was killed by signal 9"));
  CHECK(says(head.ended->message, "no other node has llm."));
  // All layers of its stage, and why nobody saves the others.
  CHECK(says(head.ended->message, " more shards (llm "));
  CHECK(says(head.ended->message,
             "), so that what is left is no whole model; there is no checkpoint to resume from"));
}

// Window: a silent node comes back
TEST_CASE("a node that fell silent is told that the job goes on without it", "[actors][recovery]") {
  RecoveringHead recovering(9, [](job::Job& job) { job.cluster.heartbeat_timeout_s = 2; });
  Head& head = recovering.head;
  head.plan(0);
  head.pass(600ms, {0, 1, 2, 3});
  head.pass(3s, {0, 2, 3});
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[1].stops.size() == 1);
  CHECK(says(head.seen[1].stops[0], "goes on without this node"));
  recovering.bring_up(2, {0, 2, 3});
  recovering.run_step(1, 2, 2);
  REQUIRE(head.recorder.events.size() == 1);
  // Last heard at 400 ms; of the looks, one each 200 ms, that at 2600 ms is the first past 2 s.
  CHECK(head.recorder.events[0].detect_ms == 2200);
}

// Window: a peer is missed that the head reaches
TEST_CASE("of nodes that miss each other the one goes that most miss and that can be done without",
          "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  const auto misses = [&](std::size_t reporter, std::size_t peer, EpochNumber epoch = 1) {
    head.tell(lost_atom::value, NodeId{reporter}, NodeId{peer}, epoch, std::string("reset"));
  };
  std::size_t gone = 1;
  SECTION("most name one") {
    misses(0, 1);
    misses(1, 0);
    misses(3, 1);
  }
  SECTION("each names the other: the higher one goes") {
    misses(0, 1);
    misses(1, 0);
  }
  SECTION("what they say about an older layout is nothing") {
    misses(0, 1, 0);
    head.pass(1s, {0, 1, 2, 3});
    CHECK(head.seen[1].stops.empty());
    misses(0, 1);
  }
  SECTION("one of them is found lost meanwhile") {
    misses(0, 3);
    recovering.lose(3);
    gone = 3;
  }
  head.pass(1s, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);
  for (std::size_t id = 0; id < 4; ++id)
    CHECK(head.seen[id].configurations.size() == (id == gone ? 1u : 2u));
  if (gone == 1) CHECK(says(head.seen[1].stops.at(0), "its connections to nodes 0"));
  if (gone == 1) CHECK(says(head.seen[1].stops.at(0), "(reset)"));
}

// Window: a peer is missed that the head reaches
TEST_CASE("of the ends of a cut link the one goes without which fewer copies are missing",
          "[actors][recovery]") {
  // Node 3 has a copy of the encoder and of half of the llm, node 2 one of the other half.
  const auto promised = GENERATE(0, 1);
  RecoveringHead recovering(9, [&](job::Job& job) {
    job.cluster.fault_tolerance = promised;
    job.parallel.layout.pipelines[1] = {{3, 0, {{"vision", {}}, {"llm", LayerRange{0, 2}}}},
                                        {2, 0, {{"llm", LayerRange{2, 4}}}}};
  });
  Head& head = recovering.head;
  head.plan(0);
  for (const auto& [reporter, peer] : {std::pair{2, 3}, std::pair{3, 2}})
    head.tell(lost_atom::value, NodeId{reporter}, NodeId{peer}, EpochNumber{1},
              std::string("reset"));
  head.pass(1s, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);
  // Where one copy is enough, and either end leaves one, the higher number goes.
  const std::size_t gone = promised == 1 ? 2 : 3;
  for (std::size_t id = 0; id < 4; ++id)
    CHECK(head.seen[id].configurations.size() == (id == gone ? 1u : 2u));
}

TEST_CASE("a loss while the last checkpoint is written: it is made again, and the job ends",
          "[actors][recovery]") {
  RecoveringHead recovering(1, [](job::Job& job) { job.checkpoint.every_steps = 1; });
  Head& head = recovering.head;
  head.plan(0);
  head.run_step(1);
  REQUIRE(head.seen[2].saves.size() == 1);
  recovering.lose(1);
  recovering.bring_up(2, {0, 2, 3});
  REQUIRE(head.seen[2].saves.size() == 2);
  for (const std::size_t id : {2u, 3u}) head.tell(Offers{NodeId{id}, 2, {}});
  head.tell(Offers{NodeId{0}, 2, {}});
  for (const std::size_t id : {0u, 2u, 3u})
    if (!head.seen[id].saves.back().shards.empty())
      head.tell(SaveReport{head.seen[id].saves.back().number, {NodeId{id}, 0}, true});
  REQUIRE(head.keeper.written.size() == 1);
  head.tell(std::make_shared<const KeptCheckpoint>(
      KeptCheckpoint{head.keeper.written[0].number, Done{}, {}}));
  CHECK(head.seen[2].stops.size() == 1);
}

TEST_CASE("peers that miss each other while a layout comes up lead to another one",
          "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  recovering.lose(2);
  head.tell(lost_atom::value, NodeId{3}, NodeId{0}, EpochNumber{2}, std::string("reset"));
  head.tell(lost_atom::value, NodeId{3}, NodeId{1}, EpochNumber{2}, std::string("reset"));
  head.pass(1s, {0, 1, 3});
  CHECK_FALSE(head.ended);
  // Node 3 names two and is named by nobody: it lost its network.
  CHECK(head.seen[3].stops.size() == 1);
  CHECK(head.seen[0].configurations.back().epoch_number == 3);
}

TEST_CASE("each loss is told, also of one that another follows", "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  recovering.lose(1);
  recovering.bring_up(2, {0, 2, 3});
  recovering.lose(0);
  SECTION("whose layout trains a step") {
    recovering.bring_up(3, {2, 3});
    recovering.run_step(1, 3, 2);
  }
  SECTION("whose layout never comes up") {
    for (int i = 0; i < 2; ++i) head.tell(stop_atom::value, std::int32_t{SIGTERM});
    REQUIRE(head.ended);
  }
  REQUIRE(head.recorder.events.size() == 2);
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{1}}));
  CHECK(head.recorder.events[0].replay_ms == 0);
  CHECK((head.recorder.events[1].nodes == std::vector<NodeId>{NodeId{0}}));
}

TEST_CASE("a node that dies while its tensors are written is no more trouble when peers say so",
          "[actors][recovery]") {
  RecoveringHead recovering(1, [](job::Job& job) { job.checkpoint.every_steps = 1; });
  Head& head = recovering.head;
  head.recorder.busy = true;
  head.plan(0);
  head.run_step(1);
  for (std::size_t id = 0; id < 4; ++id) head.tell(Offers{NodeId{id}, 1, {}});
  head.tell(lost_atom::value, NodeId{0}, NodeId{1}, EpochNumber{1}, std::string("reset"));
  recovering.lose(1);
  head.pass(1s, {0, 2, 3});
  CHECK(head.seen[0].stops.empty());
  // Its share of the checkpoint is written by another one.
  REQUIRE(head.seen[2].saves.size() == 2);
  for (const std::size_t id : {0u, 2u, 3u})
    for (const Shard& shard : head.seen[id].saves[1].shards)
      CHECK(shard.holders[0].node != NodeId{1});
}

TEST_CASE("trouble of an older layout is no trouble", "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  recovering.lose(1);
  head.tell(failed_atom::value, NodeId{0}, EpochNumber{1},
            Error{Errc::transport_failed, "peer 1 is lost", "", ""});
  head.pass(1s, {0, 2, 3});
  CHECK_FALSE(head.ended);
  head.tell(failed_atom::value, NodeId{0}, EpochNumber{2},
            Error{Errc::internal, "of this one it is", "", ""});
  CHECK(head.seen[2].stops.size() == 1);
}

// Window: a checkpoint is written
TEST_CASE("a save that a loss cuts short is made again without the lost node",
          "[actors][recovery]") {
  RecoveringHead recovering(9, [](job::Job& job) { job.checkpoint.every_steps = 1; });
  Head& head = recovering.head;
  head.plan(0);
  head.run_step(1);
  REQUIRE(head.seen[0].saves.size() == 1);
  recovering.lose(1);
  CHECK(head.keeper.discarded.size() == 1);
  CHECK(head.seen[0].saves.size() == 1);
  recovering.bring_up(2, {0, 2, 3});
  REQUIRE(head.seen[2].saves.size() == 2);
  CHECK(head.seen[2].saves[1].step == 1);
  for (const auto& node : {head.seen[2], head.seen[3]})
    for (const Shard& shard : node.saves[1].shards) CHECK(shard.holders[0].node != NodeId{1});
}

// Window: final tensors are offered
TEST_CASE("a node that is lost before it offered its tensors is done without",
          "[actors][recovery]") {
  RecoveringHead recovering(1);
  Head& head = recovering.head;
  head.plan(0);
  head.run_step(1);
  for (std::size_t id = 0; id < 3; ++id) head.tell(Offers{NodeId{id}, 1, {}});
  recovering.lose(3);
  CHECK_FALSE(head.ended);
  recovering.bring_up(2, {0, 1, 2});
  CHECK(head.seen[0].collections.size() == 2);
  head.tell(Offers{NodeId{0}, 1, {}});  // Late, of the layout before.
  for (std::size_t id = 0; id < 2; ++id) head.tell(Offers{NodeId{id}, 2, {}});
  CHECK(head.recorder.collections.empty());
  head.tell(Offers{NodeId{2}, 2, {}});
  CHECK(head.recorder.collections.size() == 1);
  CHECK(recovering.recorded() == std::vector<std::int64_t>{1});
}

}  // namespace
}  // namespace troupe::actors
