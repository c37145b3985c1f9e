// A head that says nothing while its process is there, as its nodes see it.

#include <catch2/generators/catch_generators.hpp>

#include "tests/actors/waiting_node.hpp"

namespace troupe::actors {
namespace {

TEST_CASE("a node of the head's own gives one that is only silent its time to go on",
          "[actors][takeover]") {
  Waiting waiting(0, true, true, 4, 0.5, true);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  SECTION("it goes on") {
    for (int i = 0; i < 20; ++i) {
      waiting.send_as_head(alive_atom::value);
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    waiting.send_as_head(stop_atom::value, std::string(), 0);
    CHECK(waiting.how_it_ended().exit_code == 0);
    CHECK(waiting.told ==
          "the supervisor was lost: nothing was heard from it for 0.5 s "
          "(cluster.heartbeat_timeout_s); its nodes wait 10 s for it to go on");
  }
  SECTION("its process ends") {
    waiting.lose_head();
    CHECK(waiting.how_it_ended().message ==
          "node 2 ends: the connection to the supervisor was lost");
  }
  CHECK(waiting.looks == 0);  // The job wants no other one.
}

TEST_CASE("a node of the head's own waits only so long for one that is silent",
          "[actors][takeover]") {
  Waiting waiting(0, true, false, 4, 0.25, true);
  const JobEnd how = waiting.how_it_ended();
  CHECK(how.exit_code == 1);
  CHECK(how.message ==
        "node 2 ends: the supervisor was lost: nothing was heard from it for 0.25 s "
        "(cluster.heartbeat_timeout_s), and it did not go on within 5 s");
  CHECK(waiting.saves == 0);
}

TEST_CASE("a node of another machine does not wait for a silent head that nobody replaces",
          "[actors][takeover]") {
  Waiting waiting(0, true, false, 0, 1);
  CHECK(waiting.how_it_ended().message ==
        "node 2 ends: the supervisor was lost: nothing was heard from it for 1 s "
        "(cluster.heartbeat_timeout_s)");
}

TEST_CASE("a node that still opens its data gives a head that is busy its time to go on",
          "[actors][takeover]") {
  Waiting waiting(60, true, false, 0, 0.5, false, false);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  SECTION("it goes on") {
    for (int i = 0; i < 20; ++i) {
      waiting.send_as_head(alive_atom::value);
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    waiting.may_open = true;
    Waiting::wait_until([&] { return waiting.first_.readies == 1; });
    waiting.send_as_head(stop_atom::value, std::string(), 0);
    CHECK(waiting.how_it_ended().exit_code == 0);
    CHECK(waiting.told ==
          "the supervisor was lost: nothing was heard from it for 0.5 s "
          "(cluster.heartbeat_timeout_s); its nodes wait 10 s for it to go on");
  }
  SECTION("its process ends") {
    waiting.lose_head();
    CHECK(waiting.how_it_ended().message ==
          "node 2 ends: the connection to the supervisor was lost");
  }
}

TEST_CASE("a node that opened its data while the head was busy looks for the next one",
          "[actors][takeover]") {
  Waiting waiting(60, true, false, 0, 0.5, false, false);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  waiting.may_open = true;
  Waiting::wait_until([&] { return waiting.first_.readies == 1; });
  CHECK(waiting.looks == 0);
  waiting.lose_head();
  Waiting::wait_until([&] { return waiting.looks > 0; });
  CHECK(waiting.told ==
        "the connection to the supervisor was lost; this node, which has no state yet, waits 60 s "
        "for it or for the next one");
  waiting.start_another();
  CHECK(waiting.how_it_ended().again == 1);
}

}  // namespace
}  // namespace troupe::actors
