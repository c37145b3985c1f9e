// Who comes to a head that gathers nodes, and what it is told.

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <map>

#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/state/standby_holders.hpp"
#include "tests/actors/taking_over.hpp"
#include "tests/actors/template_set.hpp"

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

TEST_CASE("a node that begins is answered when the others are gathered", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  CHECK(head.join("new", 1).empty());  // No answer yet.
  taking.pass(6s);
  REQUIRE(taking.opened.size() == 1);
  CHECK(head.seen[1].alive > 0);
}

TEST_CASE("nobody leaves while nodes are gathered, and it is not said that the job ends",
          "[actors][takeover][errors]") {
  TakingOver taking;
  Head& head = taking.head;
  head.join_with(taking.at_step(0, 4));
  for (const int node : {0, 1})
    CHECK(head.ask({ControlRequest::Kind::drain, NodeId{node}}) ==
          "no: the head still gathers the nodes of the one before it; fix: ask again once troupe "
          "ctl RUN status says that the job trains");
}

// Window: the head is lost, and a node still finishes a decided step
TEST_CASE("a head waits for nodes that still finish a step", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  NodeHolding busy = taking.at_step(1, 5);
  busy.progress.step = 4;
  for (const auto time : {4s, 2s}) {  // Five seconds are all that it waits for others.
    CHECK(head.join_with(busy) == "it has not finished step 5");
    CHECK(head.refusal.fix.empty());  // It comes again.
    taking.pass(time);
  }
  CHECK(taking.opened.empty());
  SECTION("and takes them once they have") {
    for (std::size_t id = 0; id < 4; ++id) head.join_with(taking.at_step(id, 5));
    taking.pass(1s);
    REQUIRE(taking.opened.size() == 1);
    REQUIRE(taking.opened[0]);
    CHECK(taking.opened[0]->step == 5);
  }
  SECTION("no longer than nodes have for that") {
    head.join_with(busy);
    taking.pass(2s);
    REQUIRE(taking.opened.size() == 1);
    CHECK_FALSE(taking.opened[0]);
    CHECK(says(head.join_with(busy), "comes too late"));
  }
}

// Window: the same, and the head is lost
TEST_CASE("what may not have arrived when the head was lost counts for nothing",
          "[actors][takeover]") {
  TakingOver taking([](job::Job& job) { job.cluster.fault_tolerance = 1; });
  Head& head = taking.head;
  const bool is_decided = GENERATE(true, false);
  // The last node stands by for all that it has no stage for. Two nodes are left, a whole pipeline.
  ParallelPlan plan = head.resources.plan;
  std::vector<Standby> arriving;
  const auto units = scheduler::state_units(plan.model);
  const auto holders = scheduler::unit_holders(plan);
  for (std::size_t u = 0; u < units.size(); ++u)
    if (std::find(holders[u].begin(), holders[u].end(), DeviceId{3}) == holders[u].end())
      arriving.push_back({DeviceId{3}, units[u].layer, units[u].tied});
  plan.standbys = arriving;
  scheduler::complete(plan);
  for (const std::size_t id : {2u, 3u}) {
    NodeHolding holding = taking.at_step(id, 4);
    holding.plan = plan;
    if (!is_decided) holding.arriving = arriving;
    head.join_with(holding);
  }
  taking.pass(6s);
  REQUIRE(taking.opened.size() == 1);
  REQUIRE(head.seen[3].configurations.size() == 1);
  const Configuration& next = head.seen[3].configurations[0];
  const auto comes = std::count_if(next.moves.begin(), next.moves.end(),
                                   [](const auto& move) { return move.to.node == NodeId{3}; });
  CHECK((comes == 0) == is_decided);
}

// Window: the head is lost, and a node was to leave
TEST_CASE("who was to leave under the head before leaves under the next one",
          "[actors][takeover][members]") {
  TakingOver taking;
  Head& head = taking.head;
  const bool by_signal = GENERATE(false, true), is_late = GENERATE(false, true);
  for (const std::size_t id : {3u, 0u, 1u, 2u}) {
    NodeHolding holding = taking.at_step(id, 4);
    if (id == 3 && !is_late) holding.leaves = {{"told to", by_signal}};
    head.join_with(holding);
    if (id == 3 && is_late)  // A signal, since it showed what it holds.
      head.tell(failed_atom::value, NodeId{3}, Error{Errc::cancelled, "told to", {}, {}});
  }
  CHECK(head.seen[3].stops.empty());
  taking.pass(1s);
  head.tell(templates_of(head.resources.setup));
  head.pass(600ms, {0, 1, 2, 3});
  head.bring_up(2);
  head.plan(4);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 5, 1, 1, 2);
  for (std::size_t device = 0; device < 4; ++device) head.finished(device, 5, 2);
  CHECK_FALSE(head.seen[0].configurations.back().plan.nodes().contains(NodeId{3}));
  CHECK(head.seen[0].configurations.back().plan.nodes().size() == 3);
  // Also one that a signal ends: its time for that is the longer one from here on.
  CHECK((head.seen[3].leaves == std::vector<std::string>{"told to"}));
  CHECK_FALSE(head.ended);
}

TEST_CASE("who is idle under a new head is put to work once it knows how", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  const auto& setup = head.resources.setup;
  const HandLayout half{{setup.job.parallel.layout.pipelines[1]}};
  const auto plan =
      scheduler::place_by_hand(setup.model, half, {4, 1}, scheduler::IdleDevices::left_out).value();
  for (std::size_t id = 0; id < 4; ++id) {
    NodeHolding holding = taking.at_step(id, 4);
    holding.plan = plan;
    head.join_with(holding);
  }
  taking.pass(1s);
  head.bring_up(2);
  head.plan(4);
  head.tell(templates_of(setup));
  CHECK(head.seen[0].configurations.size() == 1);  // The step under way comes first.
  for (std::size_t device = 0; device < 2; ++device) head.prepared(device, 5, 1, 1, 2);
  for (std::size_t device = 0; device < 2; ++device) head.finished(device, 5, 2);
  REQUIRE(head.seen[0].configurations.size() == 2);
  CHECK(head.seen[0].configurations[1].plan.nodes().size() == 4);
}

TEST_CASE("who was slow under the head before gets samples by that under the next one",
          "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  // Node 1 does not come: who takes its place is another process.
  head.resources.resume.slow = {{NodeId{1}, 3, 1, 1}, {NodeId{2}, 4, 1, 1}};
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  taking.pass(6s);
  const EpochNumber next = 2;
  for (const std::size_t id : {0u, 2u, 3u}) head.tell(fetched_atom::value, NodeId{id}, next, 0.0);
  for (const std::size_t id : {0u, 2u, 3u}) head.tell(applied_atom::value, NodeId{id}, next);
  REQUIRE(head.scheduler.begins.size() == 1);
  CHECK((head.scheduler.times == std::map<NodeId, double>{{NodeId{2}, 4}}));
}

TEST_CASE("nodes of another run are turned away until their head comes", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  CHECK(head.join_with(taking.at_step(0, 4), "1.0 (abc)", "77") ==
        "it waits for the head of another run");
  CHECK(head.refusal.fix.empty());  // It looks on.
  for (std::size_t id = 0; id < 4; ++id) head.join_with(taking.at_step(id, 4));
  taking.pass(1s);
  CHECK(taking.opened.size() == 1);
}

TEST_CASE("a head that was only stopped turns away nodes that obeyed a newer one",
          "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  for (std::size_t id = 0; id < 4; ++id) head.join_with(taking.at_step(id, 4));
  taking.pass(1s);
  head.bring_up(2);  // It trains, and would tell others of the run that it goes on without them.
  CHECK(head.join_with(taking.at_step(0, 5), "1.0 (abc)", "5f0c", 3) ==
        "it obeyed a newer head of this run");
  CHECK(head.refusal.fix.empty());  // It looks on.
  CHECK(says(head.join_with(taking.at_step(0, 5)), "goes on without it"));
}

TEST_CASE("a head of another build leaves nodes their state", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  head.join_with(taking.at_step(1, 4));
  head.join_with(taking.at_step(0, 4), "0.9");
  CHECK(head.refusal.fix.empty());
  REQUIRE(head.ended.has_value());
  CHECK(says(head.ended->message, "state of step 4, and are build 0.9 of troupe; this is 1.0"));
  CHECK(taking.opened.empty());
  CHECK(head.seen[1].stops.empty());
}

TEST_CASE("a node of another build of which nothing else is understood keeps what it may have",
          "[actors][takeover]") {
  const bool is_needed = GENERATE(false, true);
  TakingOver taking([is_needed](job::Job& job) {
    if (is_needed) one_pipeline(job);
    job.recovery.from_checkpoint = true;
  });
  Head& head = taking.head;
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  NodeHello other{"far", 7, 1, "0.9"};
  other.is_whole = false;
  CHECK(head.join(other) == "it is another build of troupe");
  CHECK(head.refusal.fix.empty());  // It looks on.
  taking.pass(6s);
  CHECK(head.ended.has_value() == is_needed);
  if (is_needed) {  // It is no new node in the place of one that is gone for good.
    CHECK(says(head.ended->message, "missing: node 1"));
    CHECK(taking.opened.empty());
    return;
  }
  REQUIRE(taking.opened.size() == 1);  // The job goes on, and it has nothing to wait for.
  CHECK(says(head.join(other), "it is build 0.9 of troupe, the job runs 1.0"));
  CHECK(says(head.refusal.fix, "build the same sources"));
}

TEST_CASE("a head with another build of a plug-in leaves nodes their state", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  head.resources.plugins = {{"mine.so", 1}};
  auto holding = taking.at_step(0, 4);
  holding.ready.plugins = {{"mine.so", 2}};
  SECTION("which it would go on with") {
    head.join_with(std::move(holding));
    CHECK(head.refusal.fix.empty());
    REQUIRE(head.ended.has_value());
    CHECK(says(head.ended->message,
               "state of step 4, and host (pid 100) has another build of plug-in mine.so"));
    CHECK(says(head.ended->message, "put that build back"));
    CHECK(taking.opened.empty());
  }
  SECTION("unless it only saves what they hold") {
    head.resources.gather->ends = true;
    CHECK(head.join_with(std::move(holding)) == "0");
    CHECK_FALSE(head.ended);
  }
}

TEST_CASE("a node whose last connection still counts comes again", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  head.join_with(taking.at_step(1, 4));
  CHECK(says(head.join_with(taking.at_step(1, 4)), "last connection is not noticed yet"));
  CHECK(head.refusal.fix.empty());
  head.leave({1});
  CHECK(head.join_with(taking.at_step(1, 4)) == "1");
}

TEST_CASE("a node that comes too late begins anew, and joins like others", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  taking.pass(6s);
  CHECK(
      says(head.join_with(taking.at_step(1, 4)),
           "the job goes on without it since it lost its head, and what it holds, of step 4, comes "
           "too late"));
  CHECK(head.refusal.fix == "it begins anew");
  CHECK(head.join("host", 1) == "1");  // Its process, once it has begun again.
}

TEST_CASE("who takes a head for lost that goes on begins anew", "[actors][takeover]") {
  Head head;
  head.start_training();
  NodeHolding holding;
  holding.ready.node = NodeId{1};
  CHECK(says(head.join_with(holding), "goes on without it"));
  CHECK(head.refusal.fix == "it begins anew");
}

}  // namespace
}  // namespace troupe::actors
