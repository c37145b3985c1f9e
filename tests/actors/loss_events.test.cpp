#include "actors/supervisor/supervisor_recovery.hpp"

#include <catch2/catch_approx.hpp>

#include "tests/actors/members_fixture.hpp"
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

TEST_CASE("an event tells waiting for newly dealt samples from the step, and what steps gave",
          "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  head.system.pass(100ms);
  head.run_step(1);  // Six samples in 100 ms.
  head.plan(1);
  recovering.lose(1);
  recovering.bring_up(2, {0, 2, 3});
  head.system.pass(150ms);
  head.plan(1, 50);
  head.system.pass(200ms);
  for (std::size_t device = 0; device < 2; ++device) head.prepared(device, 2, 1, 1, 2);
  for (std::size_t device = 0; device < 2; ++device) head.finished(device, 2, 2);
  REQUIRE(head.recorder.events.size() == 1);
  const observe::RunEvent& event = head.recorder.events[0];
  CHECK(event.decode_ms == 100);  // Of the 150 ms before it began its plan took 50.
  CHECK(event.replay_ms == 250);  // Of 350 ms in all.
  CHECK(event.samples_per_s_before == Catch::Approx(60));
  CHECK(event.samples_per_s_first == Catch::Approx(30));  // Six in the last 200 ms.
}

TEST_CASE("a line of the log has all that a change took, and whether another loss can be borne",
          "[actors][recovery]") {
  const testing::ScratchFolder scratch;
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.resources.logger =
      observe::Logger::create(nullptr, {"head", observe::LogLevel::info, scratch / "log"}).value();
  head.plan(0);
  head.system.pass(100ms);
  head.run_step(1);  // Six samples in 100 ms.
  head.plan(1);
  head.tell(lost_atom::value, NodeId{0}, NodeId{1}, EpochNumber{1}, std::string("reset"));
  head.system.pass(150ms);
  recovering.lose(1);
  head.system.pass(50ms);
  for (const std::size_t id : {0u, 2u, 3u})
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 20.0);
  head.system.pass(200ms);
  for (const std::size_t id : {0u, 2u, 3u})
    head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  head.system.pass(150ms);
  head.plan(1, 50);
  head.system.pass(200ms);
  for (std::size_t device = 0; device < 2; ++device) head.prepared(device, 2, 1, 1, 2);
  for (std::size_t device = 0; device < 2; ++device) head.finished(device, 2, 2);
  std::ifstream stream(scratch / "log");
  const std::string log{std::istreambuf_iterator<char>(stream), {}};
  INFO(log);
  // Of 50 ms until all had fetched 20 were connecting; of 150 until the step began 50 planning.
  CHECK(says(log,
             "the loss of node 1: noticed after 150 ms, decided in 0 ms, connected in 20 ms, 0 MB "
             "of state moved in 30 ms, stages built in 200 ms, samples newly dealt waited for 100 "
             "ms, step 2 trained in 250 ms, 30 samples per s (the one before took 100 ms, 60 "
             "samples per s); from now on the loss of a node may end the job"));
}

TEST_CASE("a job that bears fewer losses than it promises says so", "[actors][recovery]") {
  Members members([](job::Job& job) { job.cluster.fault_tolerance = 3; });
  Head& head = members.head;
  head.plan(0);
  members.lose(1);
  members.bring_up(2, {0, 2, 3});
  head.plan(0);
  members.run_step(1, 2);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].tolerance_left == 2);
  CHECK(says(members.log(),
             "; 2 more may be lost, though cluster.fault_tolerance promises 3: nodes that join can "
             "bring that back"));
}

TEST_CASE("an event of a change that another follows knows no rate after it",
          "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  head.system.pass(100ms);
  head.run_step(1);
  recovering.lose(1);
  recovering.bring_up(2, {0, 2, 3});
  recovering.lose(0);
  recovering.bring_up(3, {2, 3});
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].samples_per_s_before == Catch::Approx(60));
  CHECK(head.recorder.events[0].samples_per_s_first == 0);
}

TEST_CASE("a change of several kinds has an event for each, and its phases in the first",
          "[actors][members]") {
  Members members;
  Head& head = members.head;
  members.replace_one();
  members.ask(ControlRequest::Kind::drain, 3);
  members.run_step(1, 2);
  REQUIRE(head.recorder.events.size() == 1);
  REQUIRE(head.seen[1].configurations.back().epoch_number == 3);
  members.lose(0);  // While that layout comes up.
  head.system.pass(50ms);
  members.bring_up(4, {1, 2, 3});
  head.plan(1);
  head.system.pass(100ms);
  members.run_step(2, 4);
  REQUIRE(head.recorder.events.size() == 4);
  const observe::RunEvent& lost = head.recorder.events[1];
  CHECK(lost.kind == "lost");
  CHECK((lost.nodes == std::vector<NodeId>{NodeId{0}}));
  CHECK(lost.why == "node 0 (host, pid 100) was lost: was killed by signal 9");
  CHECK(lost.has_phases);
  CHECK(lost.copy_ms == 50);
  CHECK(lost.replay_ms >= 100);
  const observe::RunEvent& drained = head.recorder.events[2];
  CHECK(drained.kind == "drained");
  CHECK((drained.nodes == std::vector<NodeId>{NodeId{3}}));
  CHECK(says(drained.why, "node 3 leaves: "));
  const observe::RunEvent& joined = head.recorder.events[3];
  CHECK(joined.kind == "joined");
  CHECK((joined.nodes == std::vector<NodeId>{NodeId{1}}));
  CHECK(joined.why == "node 1 (another, pid 104) joined");
  for (const observe::RunEvent* beside : {&drained, &joined}) {
    CHECK_FALSE(beside->has_phases);
    CHECK(beside->generation == 4);
    CHECK(beside->step == 2);
    CHECK(beside->tolerance_left == lost.tolerance_left);
  }
}

}  // namespace
}  // namespace troupe::actors
