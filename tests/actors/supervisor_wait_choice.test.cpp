// A loss while a node is on its way: whether the job waits for it, and how such a wait ends.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_wait_choice.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/actors/members_fixture.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

std::set<NodeId> nodes_of(const std::vector<std::size_t>& ids) {
  std::set<NodeId> nodes;
  for (const std::size_t id : ids) nodes.insert(NodeId{id});
  return nodes;
}

/// What makes the wait worth it: a job whose nodes took a second to open their data, and whose
/// steps take twenty, over a network that carries all state at once.
struct Case {
  milliseconds opening = 1000ms;
  milliseconds step = 20s;
  bool knows_network = true;
  double wait_for_nodes_s = 300;
  std::string words = {};  ///< That the log has.
};

/// Each of its nodes trains all of the model. Node 1 was lost, two steps are trained, and another
/// node 1 has just been welcomed while step 3 is planned.
struct OnItsWay {
  explicit OnItsWay(const Case& x = {})
      : members(
            [&](job::Job& job) {
              job.recovery.wait_for_nodes_s = x.wait_for_nodes_s;
              job.parallel.layout.pipelines.clear();
              for (std::int32_t node = 0; node < 4; ++node)
                job.parallel.layout.pipelines.push_back({{node, 0, {{"vision", {}}, {"llm", {}}}}});
            },
            60, x.opening) {
    if (x.knows_network) members.know_network(1);
    head.plan(0);
    head.pass(x.step, {0, 1, 2, 3});
    members.run_step(1, 1);
    head.plan(1);
    members.lose(1);
    members.bring_up(2, {0, 2, 3});
    head.plan(1);
    head.pass(x.step, {0, 2, 3});
    members.run_step(2, 2);
    head.plan(2);
    REQUIRE(head.join("another") == "1");
  }

  /// Layouts that nodes were told of, and the nodes of the newest one.
  std::size_t layouts() const { return head.seen[2].configurations.size(); }
  std::set<NodeId> newest() const { return head.seen[2].configurations.back().plan.nodes(); }

  Members members;
  Head& head = members.head;
};

// Window: another one joins
TEST_CASE("after a loss a job waits for a node that is nearly there, and goes on with it",
          "[actors][recovery]") {
  OnItsWay job;
  Head& head = job.head;
  const std::int64_t before = GENERATE(0, 1);  // Under the head from which this one took over.
  head.resources.resume.node_changes = {before, 0};
  job.members.lose(0);
  CHECK(job.layouts() == 2);
  CHECK(says(job.members.log(),
             "the job waits before it goes on without it; waiting 1.3 s for node 1 (another, pid "
             "104), still opening data, is predicted to lose "));
  // By the hour that is taken at first, and the changes since.
  CHECK(says(job.members.log(), " samples in the " + std::to_string(60 / (2 + before)) +
                                    " min until nodes change again, going on now "));
  CHECK(says(head.ask({ControlRequest::Kind::status, {}}), "waiting for more nodes"));
  head.pass(600ms, {2, 3});
  CHECK(job.layouts() == 2);
  head.ready(1);
  head.pass(200ms, {1, 2, 3});
  REQUIRE(job.layouts() == 3);
  CHECK((job.newest() == nodes_of({1, 2, 3})));
  CHECK(says(job.members.log(), "node 1 is there; the job goes on"));
  job.members.bring_up(3, {1, 2, 3});
  head.plan(2);
  job.members.run_step(3, 3);
  REQUIRE(head.recorder.events.size() == 3);
  const observe::RunEvent& lost = head.recorder.events[1];
  CHECK(lost.kind == "lost");
  CHECK((lost.nodes == std::vector<NodeId>{NodeId{0}}));
  CHECK(lost.waited_ms >= 600);
  CHECK(lost.waited_ms <= 800);
  CHECK(lost.decide_ms == 0);
  CHECK(head.recorder.events[2].kind == "joined");
  CHECK(says(job.members.log(), "waited for nodes for "));
}

TEST_CASE("a job goes on where the node that it waits for is lost", "[actors][recovery]") {
  OnItsWay job;
  job.members.lose(0);
  job.head.leave({1});
  job.head.pass(800ms, {2, 3});
  REQUIRE(job.layouts() == 3);
  CHECK((job.newest() == nodes_of({2, 3})));
  CHECK(
      says(job.members.log(), "node 1, for which the job waited, does not come; the job goes on"));
}

TEST_CASE("a job goes on where the node that it waits for takes longer than others did",
          "[actors][recovery]") {
  OnItsWay job;
  Head& head = job.head;
  job.members.lose(0);
  head.pass(1000ms, {2, 3});
  CHECK(job.layouts() == 2);
  head.pass(600ms, {2, 3});
  REQUIRE(job.layouts() == 3);
  CHECK((job.newest() == nodes_of({2, 3})));
  CHECK(
      says(job.members.log(), "node 1 takes longer than others did, and the job waits no longer"));
  head.ready(1);  // It comes all the same, and gets work then.
  job.members.bring_up(3, {2, 3});
  CHECK((job.newest() == nodes_of({1, 2, 3})));
}

TEST_CASE("a job goes on at once where a wait loses more, or nothing can be predicted of it",
          "[actors][recovery]") {
  const Case x = GENERATE(
      Case{.step = 200ms, .words = "going on now is predicted to lose "},  // Steps are short.
      Case{.opening = 0ms, .words = "nobody waits for node 1"},            // It is late by now.
      Case{.knows_network = false, .words = "nobody waits for node 1"},
      Case{.wait_for_nodes_s = 1, .words = "nobody waits for node 1"});  // Less than 1.25 s.
  OnItsWay job(x);
  job.members.lose(0);
  REQUIRE(job.layouts() == 3);
  CHECK((job.newest() == nodes_of({2, 3})));
  CHECK(says(job.members.log(), x.words));
}

TEST_CASE("a job waits for no node while another one is to leave", "[actors][recovery]") {
  OnItsWay job;
  job.members.ask(ControlRequest::Kind::drain, 3);
  job.members.lose(0);
  REQUIRE(job.layouts() == 3);
  CHECK(job.newest().contains(NodeId{2}));
}

TEST_CASE("a job goes on where somebody is to leave while it waits for a node",
          "[actors][recovery]") {
  OnItsWay job;
  Head& head = job.head;
  job.members.lose(0);
  CHECK(says(job.members.ask(ControlRequest::Kind::drain, 3), "leaves before the next step"));
  head.pass(200ms, {2, 3});
  REQUIRE(job.layouts() == 3);
  CHECK((job.newest() == nodes_of({2})));
  CHECK(says(job.members.log(), "somebody is to leave, and the job waits no longer for node 1; "));
  job.members.bring_up(3, {2, 3});
  job.members.bring_up(4, {2, 3});  // Its state lies elsewhere: it may go.
  REQUIRE(head.seen[3].stops.size() == 1);
  CHECK(says(head.seen[3].stops[0], "it has left the job, which goes on"));
  CHECK_FALSE(head.ended);
}

TEST_CASE("a step whose COMMIT is known is finished while a job waits for a node",
          "[actors][recovery]") {
  OnItsWay job;
  Head& head = job.head;
  const std::size_t devices = head.scheduler.begins.back().plan.devices.size();
  for (std::size_t device = 0; device < devices; ++device) head.prepared(device, 3, 1, 1, 2);
  job.members.lose(0);
  for (std::size_t device = 0; device < devices; ++device) head.finished(device, 3, 2);
  CHECK(head.recorder.steps.size() == 3);
  head.pass(200ms, {2, 3});
  CHECK(job.layouts() == 2);
  head.ready(1);
  head.pass(200ms, {1, 2, 3});
  REQUIRE(job.layouts() == 3);
  job.members.bring_up(3, {1, 2, 3});
  CHECK(head.scheduler.next.back() == 3);
}

TEST_CASE("another loss while a job waits for a node is weighed anew, and is the same event",
          "[actors][recovery]") {
  OnItsWay job;
  Head& head = job.head;
  job.members.lose(0);
  head.pass(400ms, {2, 3});
  job.members.lose(2);
  const auto layouts = [&] { return head.seen[3].configurations.size(); };
  CHECK(layouts() == 2);
  head.ready(1);
  head.pass(200ms, {1, 3});
  REQUIRE(layouts() == 3);
  CHECK((head.seen[3].configurations.back().plan.nodes() == nodes_of({1, 3})));
  job.members.bring_up(3, {1, 3});
  head.plan(2);
  job.members.run_step(3, 3);
  REQUIRE(head.recorder.events.size() == 3);
  CHECK((head.recorder.events[1].nodes == std::vector<NodeId>{NodeId{0}, NodeId{2}}));
  CHECK(head.recorder.events[1].waited_ms >= 400);
}

TEST_CASE("calls that fail by a loss cost no other node while a job waits for one",
          "[actors][recovery][errors]") {
  OnItsWay job;
  Head& head = job.head;
  engine::FailedWork failed{3, 2};
  failed.by_device = true;
  failed.error = {Errc::transport_failed, "NCCL group 'llm': node 0 is lost", {}, {}};
  const bool is_known = GENERATE(true, false);  // The loss, by then.
  if (!is_known) head.tell(NodeId{2}, failed);
  job.members.lose(0);
  if (is_known) head.tell(NodeId{2}, failed);
  failed.error = {Errc::timed_out, "NCCL group 'vision': it hangs", {}, {}};
  head.tell(NodeId{3}, failed);
  head.pass(1000ms, {2, 3});
  CHECK(head.seen[2].stops.empty());
  CHECK(head.seen[3].stops.empty());
  CHECK_FALSE(head.ended);
  head.ready(1);
  head.pass(200ms, {1, 2, 3});
  REQUIRE(job.layouts() == 3);
  CHECK((job.newest() == nodes_of({1, 2, 3})));
  failed.epoch_number = 3;  // In the next layout it is to blame.
  head.tell(NodeId{3}, failed);
  CHECK(head.seen[3].stops.size() == 1);
}

TEST_CASE("nodes that miss each other while a job waits for another one do so in the next layout",
          "[actors][recovery]") {
  OnItsWay job;
  Head& head = job.head;
  job.members.lose(0);
  head.tell(lost_atom::value, NodeId{2}, NodeId{3}, EpochNumber{2}, std::string("reset"));
  head.pass(800ms, {2, 3});
  CHECK(head.seen[3].stops.empty());
  head.ready(1);
  head.pass(200ms, {1, 2, 3});
  REQUIRE(job.layouts() == 3);
  CHECK((job.newest() == nodes_of({1, 2, 3})));
  head.pass(800ms, {1, 2, 3});
  REQUIRE(job.layouts() == 4);
  CHECK((job.newest() == nodes_of({1, 2})));
  REQUIRE(head.seen[3].stops.size() == 1);
  CHECK(says(head.seen[3].stops[0],
             "its connections to nodes 2 broke: node 2 lost its connection to node 3 before this "
             "layout"));
  CHECK_FALSE(head.ended);
}

TEST_CASE("a job that waits for a node ends at a signal with what its nodes have",
          "[actors][recovery]") {
  OnItsWay job;
  job.members.lose(0);
  job.head.tell(stop_atom::value, std::int32_t{15});
  CHECK(job.layouts() == 2);
  REQUIRE(job.head.seen[2].saves.size() == 1);
  CHECK(job.head.seen[2].saves[0].step == 2);
  job.head.pass(2s, {2, 3});
  CHECK(job.layouts() == 2);  // Nobody goes on, whoever comes or does not.
}

}  // namespace
}  // namespace troupe::actors
