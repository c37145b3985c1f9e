// Which node it is whose process has ended.

#include "actors/supervisor/supervisor_processes.hpp"

#include <catch2/generators/catch_generators.hpp>

#include "tests/actors/members_fixture.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a node of another machine is not lost with a process of the head's that has its number",
          "[actors][members]") {
  Head head(9, [](job::Job& job) { job.cluster.local_nodes = 2; });
  SECTION("one of the head's own that has not come yet") {
    REQUIRE(head.join(NodeHello{"far", 7, 2, "1.0 (abc)"}) == "2");
    head.kill(7);
    REQUIRE(head.ended);
    CHECK(says(head.ended->message,
               "a local node process (pid 7) was killed by signal 9 before "
               "it joined"));
  }
  SECTION("one of the head's own that has come, behind it") {
    for (const std::int32_t own : {0, 1}) head.join("here", own);
    for (int i = 0; i < 2; ++i) head.join("far");
    for (const std::size_t id : {0u, 1u, 2u, 3u}) head.ready(id);
    head.bring_up(1);
    head.tell(templates_of(head.resources.setup));
    head.plan(0);
    head.lose(0);
    for (const std::size_t id : {1u, 2u, 3u})
      head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
    for (const std::size_t id : {1u, 2u, 3u})
      head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
    REQUIRE(head.join(NodeHello{"far", 101, 0, "1.0 (abc)"}) == "0");
    head.ready(0);
    REQUIRE(head.seen[0].stops.size() == 1);  // Of the one before it.
    head.lose(1);
    CHECK(head.seen[0].stops.size() == 1);
    CHECK(head.seen[1].stops.size() == 1);
  }
}

TEST_CASE("a connection that was lost a moment ago is not that of who has the place by now",
          "[actors][members]") {
  Members members;
  Head& head = members.head;
  members.begin_to_replace_one();
  caf::anon_send_exit(head.nodes[1], caf::exit_reason::kill);
  head.system.run();
  const bool is_replaced = GENERATE(true, false);
  if (is_replaced) {
    head.kill(104);  // What it says comes before that of its connection.
    REQUIRE(head.join("third") == "1");
  }
  const std::size_t stops = head.seen[1].stops.size();
  head.system.pass(400ms);
  CHECK(head.seen[1].stops.size() == stops);
  if (is_replaced) {
    head.ready(1);
    members.run_step(1, 2);
    CHECK(head.seen[0].configurations.back().plan.nodes().contains(NodeId{1}));
  } else {
    CHECK(head.join("third") == "1");  // The place is free.
  }
}

}  // namespace
}  // namespace troupe::actors
