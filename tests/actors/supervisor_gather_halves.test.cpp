// Nodes of a lost head that hold only a part of the model together, and when that is given up.

#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <vector>

#include "tests/actors/taking_over.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

// Window: the head is lost, and nodes that held what nobody else has
TEST_CASE("half a model that is in no checkpoint is left to another head",
          "[actors][takeover][errors]") {
  TakingOver taking(one_pipeline);
  Head& head = taking.head;
  const std::int64_t saved = GENERATE(0, 3);
  head.resources.gather->saved_step = saved;
  const bool is_stray = GENERATE(false, true);  // Node 1 comes, and is of no use.
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  if (is_stray) head.join_with(taking.at_step(1, 2));
  taking.pass(6s);
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == kResumable);
  for (const char* word :
       {"nodes of this run wait for their head with the state of step 4", "no other node has llm.",
        "is no whole model", "let them reach this head", "--fresh begins anew"})
    CHECK(says(head.ended->message, word));
  CHECK(says(head.ended->message,
             is_stray ? "missing: node 1 (it holds the state of step 2, others that of 4)"
                      : "missing: node 1"));
  CHECK(says(head.ended->message,
             "recovery.from_checkpoint=true goes back to the checkpoint of step 3") == (saved > 0));
  CHECK(taking.opened.empty());
  for (const NodeSeen& node : head.seen) {
    CHECK(node.restarts.empty());
    CHECK(node.stops.empty());
  }
}

TEST_CASE("who does not finish the last step in time keeps its part of the model for another head",
          "[actors][takeover][errors]") {
  TakingOver taking(one_pipeline);
  Head& head = taking.head;
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  head.join_with(taking.at_step(1, 3));
  taking.pass(1s);
  CHECK(head.seen[1].decisions.size() == 1);
  CHECK_FALSE(head.ended);
  taking.pass(3s);
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "missing: node 1 (it did not finish step 4 in time)"));
  CHECK(head.seen[1].restarts.empty());
}

TEST_CASE("where nobody who holds any of the model comes that is no reason to begin anew",
          "[actors][takeover][errors]") {
  TakingOver taking(one_pipeline);
  Head& head = taking.head;
  ParallelPlan on_others = head.resources.plan;
  on_others.devices[3] = {NodeId{0}, 1};
  NodeHolding idle = taking.at_step(3, 0);
  idle.plan = on_others;
  head.join_with(idle);
  taking.pass(6s);
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "missing: node 0, node 1 and node 2"));
  CHECK(taking.opened.empty());
  CHECK(head.seen[3].restarts.empty());
}

TEST_CASE("half a model is given up for the checkpoint where the job goes back by itself",
          "[actors][takeover]") {
  TakingOver taking(one_pipeline);
  Head& head = taking.head;
  head.resources.gather->goes_back = true;
  head.resources.gather->saved_step = 3;
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  taking.pass(6s);
  REQUIRE(taking.opened.size() == 1);
  CHECK_FALSE(taking.opened[0]);
  CHECK(taking.started[0].empty());
  for (const std::size_t id : {0u, 2u, 3u}) {
    REQUIRE(head.seen[id].restarts.size() == 1);
    CHECK(says(head.seen[id].restarts[0], "no other node has "));
  }
  head.seen = std::vector<NodeSeen>(4);
  head.start_training();  // From the beginning, here: the fake folder has no checkpoint.
  CHECK(head.scheduler.next == std::vector<std::int64_t>{0});
}

TEST_CASE("half a model is given up where new nodes stand at the places of the others",
          "[actors][takeover]") {
  // Not where the job does not begin again by itself, or a new node is elsewhere or anywhere.
  const auto [from_checkpoint, wanted, is_given_up] = GENERATE(
      table<bool, std::int32_t, bool>({{true, 1, true}, {false, 1, false}, {true, -1, false}}));
  TakingOver taking([from = from_checkpoint](job::Job& job) {
    one_pipeline(job);
    job.recovery.from_checkpoint = from;
  });
  Head& head = taking.head;
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  head.join("host", wanted);
  taking.pass(6s);
  CHECK(head.ended.has_value() != is_given_up);
  REQUIRE(taking.opened.size() == (is_given_up ? 1 : 0));
  for (const std::size_t id : {0u, 2u, 3u})
    CHECK(head.seen[id].restarts.size() == (is_given_up ? 1 : 0));
}

TEST_CASE("a new node at the place of one that has come gives up nothing",
          "[actors][takeover][errors]") {
  TakingOver taking(one_pipeline);
  Head& head = taking.head;
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  head.join_with(taking.at_step(1, 3));  // It does not finish step 4 in time, and may yet.
  head.join("host", 1);
  taking.pass(6s);
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "missing: node 1 (it did not finish step 4 in time)"));
  CHECK(taking.opened.empty());
  for (const NodeSeen& node : head.seen) CHECK(node.restarts.empty());
}

TEST_CASE("where no layout is known nobody is missing, and that gives up nothing",
          "[actors][takeover][errors]") {
  TakingOver taking(one_pipeline);
  Head& head = taking.head;
  head.join_with(taking.at_step(0, 0, 0));  // Of none yet, as a newcomer.
  taking.pass(6s);
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "is no whole model; none of these nodes has any of it"));
  CHECK(taking.opened.empty());
  CHECK(head.seen[0].restarts.empty());
}

TEST_CASE("half a model of a step that is saved is done without", "[actors][takeover]") {
  TakingOver taking(one_pipeline);
  Head& head = taking.head;
  head.resources.gather->saved_step = 4;
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  taking.pass(6s);
  REQUIRE(taking.opened.size() == 1);
  CHECK_FALSE(taking.opened[0]);
  CHECK(head.seen[0].restarts.size() == 1);
}

TEST_CASE("a head that cannot go on without them leaves half a model to another one",
          "[actors][takeover]") {
  TakingOver taking(one_pipeline);
  Head& head = taking.head;
  head.resources.gather->without = Error{Errc::unavailable, "nothing is saved", {}, {}};
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  taking.pass(6s);
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "nothing is saved"));
  for (const NodeSeen& node : head.seen) CHECK(node.stops.empty());
}

}  // namespace
}  // namespace troupe::actors
