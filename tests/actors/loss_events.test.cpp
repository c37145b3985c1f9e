#include "actors/supervisor/supervisor_recovery.hpp"

#include "tests/actors/recovering_head.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a node that was never heard is missed from its welcome on", "[actors][recovery]") {
  RecoveringHead recovering(9, [](job::Job& job) { job.cluster.heartbeat_timeout_s = 2; });
  Head& head = recovering.head;
  head.plan(0);
  head.pass(3s, {0, 2, 3});  // The first look sees nothing; that at 2400 ms is 2200 ms later.
  recovering.bring_up(2, {0, 2, 3});
  recovering.run_step(1, 2, 2);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].detect_ms == 2400);
}

TEST_CASE("a loss is detected from its first sign on", "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  const auto misses = [&](std::size_t reporter, std::size_t peer) {
    head.tell(lost_atom::value, NodeId{reporter}, NodeId{peer}, EpochNumber{1},
              std::string("reset"));
  };
  double detect_ms = 0;
  SECTION("it is killed, and nobody said anything before") { recovering.lose(1); }
  SECTION("peers miss it before its process ends") {
    misses(0, 1);
    head.system.pass(50ms);
    misses(3, 1);
    head.system.pass(50ms);
    recovering.lose(1);
    detect_ms = 100;
  }
  SECTION("only peers miss it, and are given time for a better reason") {
    misses(0, 1);
    misses(3, 1);
    head.pass(1s, {0, 1, 2, 3});
    detect_ms = 600;
  }
  SECTION("it misses all others, and none misses it") {
    misses(1, 0);
    misses(1, 3);
    head.pass(1s, {0, 1, 2, 3});
    detect_ms = 600;
  }
  recovering.bring_up(2, {0, 2, 3});
  recovering.run_step(1, 2, 2);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{1}}));
  CHECK(head.recorder.events[0].detect_ms == detect_ms);
  CHECK(head.recorder.events[0].decide_ms == 0);
}

}  // namespace
}  // namespace troupe::actors
