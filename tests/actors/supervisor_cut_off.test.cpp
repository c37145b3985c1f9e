// Nodes that answer the head, with no way for tensors between them and it: what becomes of them.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_recovery.hpp"

#include <set>
#include <string>

#include "tests/actors/recovering_head.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

const std::set<NodeId> kSecondPipeline{NodeId{2}, NodeId{3}};

/// This node does not reach the head, which is one more peer behind the four places, as it says.
void cut_off(Head& head, std::size_t node, EpochNumber epoch = 1) {
  head.tell(lost_atom::value, NodeId{node}, NodeId{4}, epoch,
            std::string("cannot connect to peer 4: refused"));
}

// Window: a node and the head have no way for tensors between them
TEST_CASE("a node that is cut off from the head alone is done without, and named",
          "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
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
  recovering.bring_up(2, {0, 2, 3});
  recovering.run_step(1, 2, 2);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].kind == "lost");
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{1}}));
  CHECK(says(head.recorder.events[0].why, "it does not reach the head for tensors"));
}

// Window: a node and the head have no way for tensors between them
TEST_CASE("all nodes that are cut off from the head go, while others are not",
          "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
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
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  cut_off(head, 1);
  recovering.lose(0);
  CHECK(head.seen[1].stops.empty());
  head.pass(1s, {1, 2, 3});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[1].stops.size() == 1);
  CHECK((head.seen[2].configurations.back().plan.nodes() == kSecondPipeline));
}

// Window: a node and the head have no way for tensors between them
TEST_CASE("a job ends where no node reaches the head, or the one that does not is needed",
          "[actors][recovery][errors]") {
  bool is_needed = false;
  SECTION("none does: it is the head that is cut off") {}
  SECTION("it holds what nobody else has") { is_needed = true; }
  RecoveringHead recovering(9, [&](job::Job& job) {
    if (is_needed) one_pipeline(job);
  });
  Head& head = recovering.head;
  head.plan(0);
  cut_off(head, 1);
  for (const std::size_t id : {0u, 2u, 3u})
    if (!is_needed) cut_off(head, id);
  head.pass(1s, {0, 1, 2, 3});
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == 1);  // Nothing is trained, and nothing saved.
  CHECK(says(head.ended->message,
             "there is no way for tensors between the head and node 1 (host, pid 101): it does "
             "not reach the head for tensors: cannot connect to the head: refused"));
  CHECK(says(head.ended->message, "going on without one of them was tried: no other node has ") ==
        is_needed);
  CHECK(says(head.ended->message, "fix: look at the network between these machines"));
}

}  // namespace
}  // namespace troupe::actors
