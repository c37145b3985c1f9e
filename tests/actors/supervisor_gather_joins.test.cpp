// Who comes to a head that gathers nodes, and what it is told.

#include "tests/actors/taking_over.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a node that is lost while it is gathered may come again", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  for (std::size_t id = 0; id < 3; ++id) head.join_with(taking.at_step(id, 4));
  head.leave({0});
  CHECK(head.join_with(taking.at_step(3, 4)) == "3");
  taking.pass(2s);
  CHECK(taking.opened.empty());
  CHECK(head.join_with(taking.at_step(0, 4)) == "0");
  taking.pass(1s);
  REQUIRE(taking.opened.size() == 1);
  CHECK(taking.opened[0]->step == 4);
}

TEST_CASE("a node that is told to end while it is gathered ends", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  for (std::size_t id = 0; id < 4; ++id) head.join_with(taking.at_step(id, 4));
  head.tell(failed_atom::value, NodeId{1}, Error{Errc::cancelled, "stopped by SIGTERM", {}, {}});
  CHECK(head.seen[1].stops == std::vector<std::string>{"stopped by SIGTERM"});
  taking.pass(6s);
  REQUIRE(taking.started.size() == 1);
  CHECK(taking.started[0].size() == 3);
}

TEST_CASE("a node that begins is answered when the others are gathered", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  CHECK(head.join("new", 1).empty());  // No answer yet.
  taking.pass(6s);
  REQUIRE(taking.opened.size() == 1);
  CHECK(head.seen[1].alive > 0);
}

TEST_CASE("nodes of another run are turned away until their head comes", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  CHECK(head.join_with(taking.at_step(0, 4), "1.0 (abc)", "77") ==
        "it waits for the head of another run");
  CHECK(head.fix.empty());  // It looks on.
  for (std::size_t id = 0; id < 4; ++id) head.join_with(taking.at_step(id, 4));
  taking.pass(1s);
  CHECK(taking.opened.size() == 1);
}

TEST_CASE("a head of another build leaves nodes their state", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  head.join_with(taking.at_step(1, 4));
  head.join_with(taking.at_step(0, 4), "0.9");
  CHECK(head.fix.empty());
  REQUIRE(head.ended.has_value());
  CHECK(says(head.ended->message, "state of step 4, and are build 0.9 of troupe; this is 1.0"));
  CHECK(taking.opened.empty());
  CHECK(head.seen[1].stops.empty());
}

TEST_CASE("a node whose last connection still counts comes again", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  head.join_with(taking.at_step(1, 4));
  CHECK(says(head.join_with(taking.at_step(1, 4)), "last connection is not noticed yet"));
  CHECK(head.fix.empty());
  head.leave({1});
  CHECK(head.join_with(taking.at_step(1, 4)) == "1");
}

TEST_CASE("a node that comes too late is refused", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  taking.pass(6s);
  CHECK(head.join_with(taking.at_step(1, 4)) ==
        "the job goes on without it since it lost its head");
}

TEST_CASE("a head that was not lost refuses who says so", "[actors][takeover]") {
  Head head;
  head.start_training();
  NodeHolding holding;
  holding.ready.node = NodeId{1};
  CHECK(says(head.join_with(holding), "goes on without it"));
}

}  // namespace
}  // namespace troupe::actors
