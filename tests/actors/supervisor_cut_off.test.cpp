// Nodes that answer the head, with no way for tensors between them and it: what becomes of them.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_recovery.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/actors/saving_head.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

const std::set<NodeId> kSecondPipeline{NodeId{2}, NodeId{3}};

const std::string kNoWay =
    "there is no way for tensors between the head and node 1 (host, pid 101): it does not reach "
    "the "
    "head for tensors: cannot connect to the head: refused";

const std::string kHow = "cannot connect to peer 4: refused";

/// This node could make no way to the head, which is one more peer behind the four places, as it
/// says.
void cut_off(Head& head, std::size_t node, EpochNumber epoch = 1) {
  head.tell(unreached_atom::value, NodeId{node}, NodeId{4}, epoch, kHow);
}

/// The way that there was broke, as it says.
void break_way(Head& head, std::size_t node) {
  head.tell(lost_atom::value, NodeId{node}, NodeId{4}, EpochNumber{1}, kHow);
}

/// These nodes take up the newest layout.
void take_up(Head& head, EpochNumber epoch, const std::vector<std::size_t>& nodes) {
  for (const std::size_t id : nodes) head.tell(fetched_atom::value, NodeId{id}, epoch, 0.0);
  for (const std::size_t id : nodes) head.tell(applied_atom::value, NodeId{id}, epoch);
}

// Window: a node and the head have no way for tensors between them
TEST_CASE("a node that is cut off from the head alone is done without, and named",
          "[actors][recovery]") {
  Head head(9);
  head.join_all();
  cut_off(head, 3, 0);  // Of an older layout.
  cut_off(head, 1);
  head.pass(400ms, {0, 1, 2, 3});
  CHECK(head.seen[1].stops.empty());  // It may be lost, and that says more.
  head.pass(600ms, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[1].stops.size() == 1);
  CHECK(says(head.seen[1].stops[0],
             "node 1 (host, pid 101) was lost: it does not reach the head for tensors: cannot "
             "connect to the head: refused"));
  for (const std::size_t id : {0u, 2u, 3u}) {
    CHECK(head.seen[id].stops.empty());
    REQUIRE(head.seen[id].configurations.size() == 2);
    CHECK((head.seen[id].configurations[1].plan.nodes() == kSecondPipeline));
  }
  take_up(head, 2, {0, 2, 3});
  head.plan(0);
  for (std::size_t device = 0; device < 2; ++device) head.prepared(device, 1, 1, 1, 2);
  for (std::size_t device = 0; device < 2; ++device) head.finished(device, 1, 2);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].kind == "lost");
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{1}}));
  CHECK(says(head.recorder.events[0].why, "it does not reach the head for tensors"));
}

// Window: a node and the head have no way for tensors between them
TEST_CASE("all nodes that are cut off from the head go, while others are not",
          "[actors][recovery]") {
  Head head(9);
  head.join_all();
  for (const std::size_t id : {0u, 1u}) cut_off(head, id);
  head.pass(1s, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);
  for (const std::size_t id : {0u, 1u}) CHECK(head.seen[id].stops.size() == 1);
  for (const std::size_t id : {2u, 3u}) {
    CHECK(head.seen[id].stops.empty());
    CHECK((head.seen[id].configurations.back().plan.nodes() == kSecondPipeline));
  }
}

// Window: a node and the head have no way for tensors between them
TEST_CASE("a node that is cut off from the head goes behind a loss that came first",
          "[actors][recovery]") {
  const bool is_broken = GENERATE(false, true);
  const bool is_made_anew = GENERATE(false, true);  // The next layout tries what there never was.
  Head head(9);
  head.join_all();
  if (is_broken)
    break_way(head, 1);
  else
    cut_off(head, 1);
  head.lose(0);
  CHECK(head.seen[1].stops.empty());
  if (!is_broken && !is_made_anew) cut_off(head, 1, 2);
  head.pass(1s, {1, 2, 3});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[1].stops.size() == (!is_broken && is_made_anew ? 0 : 1));
  CHECK((head.seen[2].configurations.back().plan.nodes() == kSecondPipeline));
}

// Window: a node and the head have no way for tensors between them
TEST_CASE("a job ends where no node reaches the head", "[actors][recovery][errors]") {
  Head head(9);
  head.join_all();
  for (const std::size_t id : {1u, 0u, 2u, 3u}) cut_off(head, id);
  head.pass(1s, {0, 1, 2, 3});
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == 1);  // Nothing is trained, and nothing saved.
  CHECK(says(head.ended->message, kNoWay));
  CHECK_FALSE(says(head.ended->message, "going on without one of them was tried"));
  CHECK(says(head.ended->message, "fix: look at the network between these machines"));
}

// Window: a node and the head have no way for tensors between them
TEST_CASE("a job saves and ends where a node that it needs does not reach the head",
          "[actors][recovery][errors]") {
  SavingHead saving(1, {}, one_pipeline);
  Head& head = saving.head;
  saving.run_step(1);
  break_way(head, 1);  // While the model is collected.
  head.pass(1s, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);
  REQUIRE_FALSE(head.seen[0].saves.empty());
  saving.write();
  saving.keep();
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == 75);
  CHECK(says(head.ended->message, kNoWay));
  CHECK(says(head.ended->message, "going on without one of them was tried: no other node has "));
  CHECK(says(head.ended->message, "fix: step 1 is saved: the same command goes on from there"));
}

// Window: a node and the head have no way for tensors between them
TEST_CASE("a way to the head that breaks behind its layout costs nobody before the end",
          "[actors][recovery]") {
  const bool is_needed = GENERATE(false, true);
  const bool is_training = GENERATE(false, true);  // Or others are still waited for.
  Head head(1, [&](job::Job& job) {
    if (is_needed) one_pipeline(job);
  });
  head.join_all();
  head.tell(fetched_atom::value, NodeId{1}, EpochNumber{1}, 0.0);
  if (!is_training) break_way(head, 1);
  head.pass(1s, {0, 1, 2, 3});
  take_up(head, 1, {0, 1, 2, 3});
  head.plan(0);
  if (is_training) break_way(head, 1);
  break_way(head, 1);
  head.pass(1s, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);
  for (const NodeSeen& node : head.seen) {
    CHECK(node.stops.empty());
    CHECK(node.configurations.size() == 1);
    CHECK(node.saves.empty());
  }
  head.run_step(1);
  CHECK_FALSE(head.ended);
  // The model is to be collected: now it matters.
  for (const NodeSeen& node : head.seen) CHECK(node.collections.empty());
  if (is_needed) {
    for (const NodeSeen& node : head.seen) {
      REQUIRE_FALSE(node.saves.empty());
      CHECK(node.saves.back().step == 1);
      CHECK(node.stops.empty());
    }
    return;
  }
  REQUIRE(head.seen[1].stops.size() == 1);
  CHECK(says(head.seen[1].stops[0], "node 1 (host, pid 101) was lost: it does not reach the head"));
  take_up(head, 2, {0, 2, 3});
  for (const std::size_t id : {0u, 2u, 3u}) CHECK(head.seen[id].collections.size() == 1);
}

// Window: a node and the head have no way for tensors between them
TEST_CASE("a node to which no way from the head ever came up goes behind its layout too",
          "[actors][recovery]") {
  const bool is_training = GENERATE(false, true);  // Or others are still waited for.
  Head head(9);
  head.join_all();
  if (is_training) {
    take_up(head, 1, {0, 1, 2, 3});
    head.plan(0);
  } else {
    head.tell(fetched_atom::value, NodeId{1}, EpochNumber{1}, 0.0);
  }
  const std::string how = "peer 4 is out of reach: the connection to it did not come up within 6 s";
  head.tell(lost_atom::value, NodeId{4}, NodeId{1}, EpochNumber{0}, how);  // Of an older layout.
  head.pass(1s, {0, 1, 2, 3});
  CHECK(head.seen[1].stops.empty());
  head.tell(lost_atom::value, NodeId{4}, NodeId{1}, EpochNumber{1}, how);
  head.pass(1s, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[1].stops.size() == 1);
  CHECK(says(head.seen[1].stops[0],
             "node 1 (host, pid 101) was lost: it does not reach the head for tensors: the head is "
             "out of reach: the connection to it did not come up within 6 s"));
  for (const std::size_t id : {0u, 2u, 3u}) {
    CHECK(head.seen[id].stops.empty());
    REQUIRE(head.seen[id].configurations.size() == 2);
    CHECK((head.seen[id].configurations[1].plan.nodes() == kSecondPipeline));
  }
}

// Window: final tensors are offered
TEST_CASE("a way to the head that breaks while the model is written does no harm",
          "[actors][recovery]") {
  const bool is_needed = GENERATE(false, true);
  Head head(1, [&](job::Job& job) {
    if (is_needed) one_pipeline(job);
  });
  head.recorder.busy = true;
  head.start_training();
  head.plan(0);
  head.run_step(1);
  for (std::size_t id = 0; id < 4; ++id) head.tell(Offers{NodeId{id}, 1, {}});
  REQUIRE(head.recorder.collections.size() == 1);
  break_way(head, 1);
  head.pass(1s, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);  // The recorder may have it all.
  for (const NodeSeen& node : head.seen) {
    CHECK(node.stops.empty());
    CHECK(node.configurations.size() == 1);
  }
  SECTION("all had come: the job is done") {
    caf::anon_send(head.actors.recorder, begin_atom::value, Configuration{});
    head.leave({0, 1, 2, 3});
    REQUIRE(head.ended);
    CHECK(head.ended->exit_code == 0);
  }
  SECTION("something had not: others give it, or what they have is saved") {
    head.tell(failed_atom::value, Error{Errc::timed_out, "nothing came from peer 1", "", ""});
    head.pass(800ms, {0, 1, 2, 3});
    CHECK_FALSE(head.ended);
    CHECK(head.seen[0].configurations.size() == (is_needed ? 1 : 2));
    CHECK(head.seen[1].stops.size() == (is_needed ? 0 : 1));
    if (is_needed)
      for (const NodeSeen& node : head.seen) CHECK_FALSE(node.saves.empty());
  }
}

}  // namespace
}  // namespace troupe::actors
