// A loss at each moment of the table in actors/README.md that no other test hits exactly.

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <set>

#include "actors/coordination/membership.hpp"
#include "scheduler/state/state_moves.hpp"
#include "tests/actors/members_fixture.hpp"
#include "tests/actors/recovering_head.hpp"
#include "tests/actors/template_set.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

const std::set<NodeId> kFirstPipeline{NodeId{0}, NodeId{1}};
const std::set<NodeId> kSecondPipeline{NodeId{2}, NodeId{3}};

/// All nodes but one.
std::vector<std::size_t> others_of(std::size_t lost) {
  std::vector<std::size_t> others;
  for (std::size_t id = 0; id < 4; ++id)
    if (id != lost) others.push_back(id);
  return others;
}

// Window: the first layout comes up
TEST_CASE("a node that is lost while the first layout comes up is done without",
          "[actors][recovery]") {
  Head head(9);
  head.join_all();
  REQUIRE(head.seen[0].configurations.size() == 1);
  // Nobody has anything yet, some have it, all have and are told to turn over, one has done so.
  const int moment = GENERATE(0, 1, 2, 3);
  const std::size_t fetched = moment == 0 ? 0 : moment == 1 ? 3 : 4, applied = moment == 3 ? 1 : 0;
  for (std::size_t id = 0; id < fetched; ++id)
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{1}, 0.0);
  for (std::size_t id = 0; id < applied; ++id)
    head.tell(applied_atom::value, NodeId{id}, EpochNumber{1});
  head.lose(1);
  CHECK_FALSE(head.ended);
  CHECK(head.scheduler.begins.empty());  // No step was planned on it.
  for (const std::size_t id : others_of(1)) {
    REQUIRE(head.seen[id].configurations.size() == 2);
    CHECK(head.seen[id].configurations[1].epoch_number == 2);
    CHECK((head.seen[id].configurations[1].plan.nodes() == kSecondPipeline));
  }
  for (const std::size_t id : others_of(1))
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  for (const std::size_t id : others_of(1))
    head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  REQUIRE(head.scheduler.next.size() == 1);
  CHECK(head.scheduler.next[0] == 0);  // From the beginning.
  head.plan(0);
  for (std::size_t device = 0; device < 2; ++device) head.prepared(device, 1, 1, 1, 2);
  for (std::size_t device = 0; device < 2; ++device) head.finished(device, 1, 2);
  REQUIRE(head.recorder.steps.size() == 1);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].kind == "lost");
  CHECK(head.recorder.events[0].step == 1);
}

// Window: the first layout comes up
// Window: a node and the head have no way for tensors between them
TEST_CASE("a node that the head does not reach as the job begins is lost in a moment",
          "[actors][recovery]") {
  Head head(9);
  for (std::size_t id = 0; id < 4; ++id) {
    head.join("host");
    if (id != 1) {
      head.ready(id);
      continue;
    }
    NodeReady ready = introduce(NodeId{1}, *head.resources.transport, {60, 7});
    ready.address.clear();  // Nothing answers there.
    caf::send_as(head.nodes[1], head.actor, std::move(ready));
  }
  CHECK_FALSE(head.ended);
  SECTION("its process has ended: the others begin") {
    head.lose(1);
    CHECK_FALSE(head.ended);
    REQUIRE(head.seen[0].configurations.size() == 2);
    CHECK((head.seen[0].configurations[1].plan.nodes() == kSecondPipeline));
    head.pass(800ms, {0, 2, 3});
    CHECK_FALSE(head.ended);
  }
  SECTION("it lives: no way leads to it, and that is said") {
    CHECK(head.seen[1].stops.empty());
    head.pass(800ms, {0, 1, 2, 3});
    CHECK_FALSE(head.ended);
    CHECK(says(head.seen[1].stops.at(0),
               "node 1 (host, pid 101) was lost: the head does not reach it"));
    REQUIRE(head.seen[0].configurations.size() == 2);
    CHECK((head.seen[0].configurations[1].plan.nodes() == kSecondPipeline));
  }
}

/// Cuts the model over all nodes, each of which stands by for another one.
void one_pipeline_with_standbys(job::Job& job) {
  one_pipeline(job);
  job.cluster.fault_tolerance = 1;
}

// Window: the first layout comes up
TEST_CASE("one pipeline with standby holders bears a loss before its first batch is planned",
          "[actors][recovery]") {
  // Nobody has anything yet, all are told to turn over, all wait for a plan.
  const int moment = GENERATE(0, 1, 2);
  const bool is_killed = GENERATE(true, false);  // Or else it is to leave.
  Head head(9, one_pipeline_with_standbys);
  std::vector<ParallelPlan> drawn;
  head.resources.draw_templates = [&](const ParallelPlan& plan) -> Result<scheduler::TemplateSet> {
    drawn.push_back(plan);
    return *templates_of(head.resources.setup);
  };
  head.join_all();
  for (std::size_t id = 0; moment > 0 && id < 4; ++id)
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{1}, 0.0);
  for (std::size_t id = 0; moment > 1 && id < 4; ++id)
    head.tell(applied_atom::value, NodeId{id}, EpochNumber{1});
  CHECK(drawn.empty());  // A start does not wait for them.
  if (!is_killed) {
    CHECK(says(head.ask({ControlRequest::Kind::drain, NodeId{1}}), "leaves before the next step"));
  } else {
    head.lose(1);
    CHECK_FALSE(head.ended);
    REQUIRE(head.seen[0].configurations.size() == 2);
    const ParallelPlan& next = head.seen[0].configurations[1].plan;
    CHECK_FALSE(next.nodes().contains(NodeId{1}));
    const engine::JobSetup& setup = head.resources.setup;
    CHECK(tolerance_of(scheduler::place_state(next, setup.parameters, Dtype::fp64)) >= 1);
  }
  REQUIRE(drawn.size() == 1);
  CHECK(drawn[0] == head.resources.plan);
}

// Window: planning
TEST_CASE("a node that is lost while the next step is planned leaves its plan unused",
          "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  head.run_step(1);
  const std::size_t plans = head.seen[2].plans.size();
  recovering.lose(1);
  REQUIRE(head.seen[2].configurations.size() == 2);  // Nothing is under way: at once.
  head.plan(1);                                      // The scheduler had not heard of it.
  CHECK(head.seen[2].plans.size() == plans);
  recovering.bring_up(2, {0, 2, 3});
  CHECK(head.scheduler.next.back() == 1);  // The same batch, planned anew.
  recovering.run_step(2, 2, 2);
  CHECK(head.seen[2].plans.size() == plans + 1);
  CHECK(recovering.recorded() == std::vector<std::int64_t>{1, 2});
}

// Window: forward, backward, sums
// Window: between PREPARED and COMMIT
TEST_CASE("however many are PREPARED, a loss before the last of them gives the step up",
          "[actors][recovery]") {
  const std::size_t lost = GENERATE(range(0u, 4u));
  // 0: all still compute. The lost one is the first who says it, or the one who does not.
  const std::size_t count = GENERATE(range(0u, 4u));
  const bool is_first = GENERATE(true, false);
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  std::vector<std::size_t> order = others_of(lost);
  order.insert(is_first ? order.begin() : order.end(), lost);
  for (std::size_t i = 0; i < count; ++i) head.prepared(order[i], 1, 1, 1);
  recovering.lose(lost);
  for (std::size_t i = count; i < order.size(); ++i) head.prepared(order[i], 1, 1, 1);
  CHECK_FALSE(head.ended);
  for (const std::size_t id : others_of(lost)) {
    CHECK(head.seen[id].decisions.empty());
    REQUIRE(head.seen[id].configurations.size() == 2);
    CHECK((head.seen[id].configurations[1].plan.nodes() ==
           (lost < 2 ? kSecondPipeline : kFirstPipeline)));
  }
  recovering.bring_up(2, others_of(lost));
  CHECK(head.scheduler.next.back() == 0);
  recovering.run_step(1, 2, 2);
  CHECK(recovering.recorded() == std::vector<std::int64_t>{1});
  CHECK(head.seen[lost < 2 ? 2 : 0].decisions.size() == 1);
}

// Window: several nodes at once, in a step that is decided or not
TEST_CASE("nodes that are lost at the same moment are one event", "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  const bool is_decided = GENERATE(false, true);
  if (is_decided) {
    for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 1, 1, 1);
    for (const std::size_t device : {2u, 3u}) head.finished(device, 1);
  }
  recovering.lose(0);
  recovering.lose(1);
  CHECK_FALSE(head.ended);
  const EpochNumber newest = head.seen[2].configurations.back().epoch_number;
  CHECK((head.seen[2].configurations.back().plan.nodes() == kSecondPipeline));
  recovering.bring_up(newest, {2, 3});
  CHECK(head.scheduler.next.back() == (is_decided ? 1 : 0));
  recovering.run_step(is_decided ? 2 : 1, newest, 2);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{0}, NodeId{1}}));
  CHECK(head.recorder.events[0].generation == newest);
  CHECK(recovering.recorded().back() == (is_decided ? 2 : 1));
}

// Window: the same node
TEST_CASE("a node whose loss shows in two ways is lost once", "[actors][recovery]") {
  RecoveringHead recovering;
  Head& head = recovering.head;
  head.plan(0);
  SECTION("its process ends, then its connection") {
    recovering.lose(1);
    caf::anon_send_exit(head.nodes[1], caf::exit_reason::kill);
    head.system.run();
  }
  SECTION("its connection, then its process") {
    caf::anon_send_exit(head.nodes[1], caf::exit_reason::kill);
    head.system.run();
    recovering.lose(1);
  }
  SECTION("peers miss it, too") {
    recovering.lose(1);
    for (const EpochNumber epoch : {1u, 2u})
      head.tell(lost_atom::value, NodeId{0}, NodeId{1}, epoch, std::string("reset"));
  }
  head.pass(1s, {0, 2, 3});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].configurations.size() == 2);
  recovering.bring_up(2, {0, 2, 3});
  recovering.run_step(1, 2, 2);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{1}}));
}

// Window: the same node again
TEST_CASE("the same place is lost twice, with a new process in it", "[actors][recovery]") {
  Members members;
  Head& head = members.head;
  members.replace_one();
  members.run_step(1, 2);
  members.bring_up(3, {0, 1, 2, 3});
  head.plan(1);
  head.lose(1);  // The first one, which is long gone.
  CHECK(head.seen[0].configurations.back().epoch_number == 3);
  head.kill(104);
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].configurations.back().epoch_number == 4);
  CHECK_FALSE(head.seen[0].configurations.back().plan.nodes().contains(NodeId{1}));
  members.bring_up(4, {0, 2, 3});
  CHECK(head.scheduler.next.back() == 1);
  head.plan(1);
  members.run_step(2, 4);
  REQUIRE(head.recorder.steps.size() == 2);
  REQUIRE(head.recorder.events.size() == 3);
  const std::vector<const char*> kinds{"lost", "joined", "lost"};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(head.recorder.events[i].kind == kinds[i]);
    CHECK((head.recorder.events[i].nodes == std::vector<NodeId>{NodeId{1}}));
    CHECK(head.recorder.events[i].generation == i + 2);
  }
}

// Window: a silent node comes back
TEST_CASE("a silent node that comes back says nothing that counts, and may join anew",
          "[actors][recovery]") {
  Members members([](job::Job& job) { job.cluster.heartbeat_timeout_s = 2; });
  Head& head = members.head;
  head.plan(0);
  head.pass(600ms, {0, 1, 2, 3});
  head.pass(3s, {0, 2, 3});
  REQUIRE(head.seen[1].stops.size() == 1);
  REQUIRE(head.seen[0].configurations.back().epoch_number == 2);
  // What it had to say when it fell asleep, and what it would say of a layout it never got.
  head.tell(alive_atom::value, NodeId{1});
  head.prepared(1, 1, 1, 1);
  head.tell(fetched_atom::value, NodeId{1}, EpochNumber{1}, 0.0);
  head.tell(fetched_atom::value, NodeId{1}, EpochNumber{2}, 0.0);
  head.tell(applied_atom::value, NodeId{1}, EpochNumber{2});
  for (const std::size_t id : {0u, 2u, 3u}) CHECK(head.seen[id].settled.size() == 1);
  members.bring_up(2, {0, 2, 3});
  head.plan(0);
  head.prepared(1, 1, 1, 1);  // Of the generation before.
  CHECK(head.seen[0].decisions.empty());
  CHECK(head.seen[1].configurations.size() == 1);
  REQUIRE(head.join("host") == "1");
  head.ready(1);
  members.run_step(1, 2);
  REQUIRE(head.seen[1].configurations.size() == 2);
  CHECK(head.seen[1].configurations[1].epoch_number == 3);
  CHECK(head.seen[1].configurations[1].plan.nodes().contains(NodeId{1}));
}

// Window: another one joins
TEST_CASE("a node that is lost while another one joins leads to a layout with the other",
          "[actors][recovery]") {
  Members members;
  Head& head = members.head;
  members.begin_to_replace_one();
  const bool is_ready = GENERATE(true, false);
  if (is_ready) head.ready(1);
  members.lose(0);
  if (!is_ready) head.ready(1);
  CHECK_FALSE(head.ended);
  EpochNumber newest = head.seen[2].configurations.back().epoch_number;
  members.bring_up(newest,
                   is_ready ? std::vector<std::size_t>{1, 2, 3} : std::vector<std::size_t>{2, 3});
  if (!is_ready) {  // It was not ready for that one, and is taken in at once.
    newest = head.seen[2].configurations.back().epoch_number;
    REQUIRE(newest == 4);
    members.bring_up(newest, {1, 2, 3});
  }
  CHECK(head.seen[1].configurations.back().epoch_number == newest);
  CHECK(head.scheduler.next.back() == 0);
  head.plan(0);
  members.run_step(1, newest);
  CHECK(head.recorder.steps.size() == 1);
  std::multiset<std::string> kinds;
  for (const observe::RunEvent& event : head.recorder.events) kinds.insert(event.kind);
  CHECK((kinds == std::multiset<std::string>{"joined", "lost", "lost"}));
}

// Window: a peer is missed that the head reaches
TEST_CASE("a way that one end alone saw fail gives up the layout that waits for it",
          "[actors][recovery]") {
  const bool is_first = GENERATE(true, false);
  Head head(9);
  head.join_all();
  EpochNumber epoch = 1;
  if (!is_first) {
    head.lose(2);
    epoch = 2;
  }
  for (const std::size_t id : {0u, 1u}) head.tell(fetched_atom::value, NodeId{id}, epoch, 0.0);
  // So says node 3; node 1 hears nothing, and would wait for cluster.join_timeout_s.
  for (const auto& [reporter, peer] : {std::pair{3, 1}, std::pair{1, 3}})
    head.tell(lost_atom::value, NodeId{reporter}, NodeId{peer}, epoch, std::string("out of reach"));
  head.pass(800ms, {0, 1, 3});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].configurations.back().epoch_number == epoch + 1);
  CHECK(head.seen[1].stops.size() + head.seen[3].stops.size() == 1);
}

// Window: a peer is missed that the head reaches
TEST_CASE("who joins and does not reach a node goes again, and that node stays",
          "[actors][recovery]") {
  Members members;
  Head& head = members.head;
  members.replace_one();
  members.run_step(1, 2);
  REQUIRE(head.seen[1].configurations.back().epoch_number == 3);
  for (const auto& [reporter, peer] : {std::pair{1, 3}, std::pair{3, 1}})
    head.tell(unreached_atom::value, NodeId{reporter}, NodeId{peer}, EpochNumber{3},
              std::string("no way leads there"));
  head.pass(1s, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);
  CHECK(says(head.seen[1].stops.back(), "no way leads there"));
  // Of others the one with the higher number would go.
  CHECK(head.seen[3].stops.empty());
  CHECK(head.seen[3].configurations.back().epoch_number == 4);
  CHECK(head.seen[3].configurations.back().plan.nodes().contains(NodeId{3}));
}

// Window: a peer is missed that the head reaches
TEST_CASE("a way between nodes that could not be made costs nobody where the next layout makes it",
          "[actors][recovery]") {
  Head head(9);
  head.join_all();
  const auto miss_each_other = [&head](EpochNumber epoch) {
    for (const auto& [reporter, peer] : {std::pair{0, 2}, std::pair{2, 0}})
      head.tell(unreached_atom::value, NodeId{reporter}, NodeId{peer}, epoch,
                std::string("no way leads there"));
  };
  miss_each_other(1);
  head.lose(3);  // Before it is known whom that costs.
  head.pass(800ms, {0, 1, 2});
  CHECK_FALSE(head.ended);
  for (const std::size_t id : {0u, 1u, 2u}) {
    CHECK(head.seen[id].stops.empty());
    CHECK(head.seen[id].configurations.size() == 2);
  }
  miss_each_other(2);  // It could not be made again.
  head.pass(800ms, {0, 1, 2});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].stops.size() + head.seen[2].stops.size() == 1);
}

}  // namespace
}  // namespace troupe::actors
