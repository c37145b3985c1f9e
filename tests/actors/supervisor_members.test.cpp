#include "actors/supervisor/supervisor_members.hpp"

#include <catch2/generators/catch_generators.hpp>

#include "runtime/observe/job_status.hpp"
#include "tests/actors/members_fixture.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a node that joins a running job works from the next step on", "[actors][members]") {
  Members members;
  Head& head = members.head;
  members.begin_to_replace_one();
  CHECK(head.seen[1].configurations.size() == 1);
  head.ready(1);
  CHECK(head.seen[0].configurations.size() == 2);  // The step under way comes first.
  members.run_step(1, 2);
  REQUIRE(head.seen[0].configurations.size() == 3);
  REQUIRE(head.seen[1].configurations.size() == 2);
  const Configuration& next = head.seen[1].configurations[1];
  CHECK(next.epoch_number == 3);
  CHECK(next.plan.nodes().contains(NodeId{1}));
  CHECK(next.nodes.size() == 5);  // And the head.
  CHECK_FALSE(next.moves.empty());
  members.bring_up(3, {0, 1, 2, 3});
  CHECK(head.scheduler.next.back() == 1);
  head.plan(1);
  members.run_step(2, 3);
  REQUIRE(head.recorder.events.size() == 2);
  CHECK(head.recorder.events[1].kind == "joined");
  CHECK((head.recorder.events[1].nodes == std::vector<NodeId>{NodeId{1}}));
  CHECK(says(head.recorder.events[1].why, "another"));
}

TEST_CASE("a node that gets ready while a layout comes up does not hold it up",
          "[actors][members]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  members.lose(1);
  head.join("another");
  SECTION("before all have fetched") {
    head.ready(1);
    members.bring_up(2, {0, 2, 3});
  }
  SECTION("before all have turned over") {
    for (const std::size_t id : {0u, 2u, 3u})
      head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
    head.ready(1);
    for (const std::size_t id : {0u, 2u, 3u})
      head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  }
  CHECK(head.scheduler.begins.size() >= 2);
  CHECK(head.seen[1].configurations.back().epoch_number == 3);  // It is taken in at once.
}

TEST_CASE("who takes the place of a node that left is not blamed for its goodbye",
          "[actors][members]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  members.ask(ControlRequest::Kind::drain, 3);
  members.run_step(1, 1);
  members.bring_up(2, {0, 1, 2, 3});
  head.plan(1);
  CHECK(head.join("another", 3) == "3");
  head.tell(lost_atom::value, NodeId{0}, NodeId{3}, EpochNumber{2}, std::string("reset"));
  head.pass(1s, {0, 1, 2, 3});
  CHECK(head.seen[3].stops.size() == 1);  // The word to the one that left.
}

TEST_CASE("a node that leaves before it has written its share of a checkpoint holds nobody up",
          "[actors][members]") {
  Members members([](job::Job& job) { job.checkpoint.every_steps = 1; });
  Head& head = members.head;
  head.plan(0);
  members.run_step(1, 1);
  REQUIRE(head.seen[3].saves.size() == 1);
  head.plan(1);
  members.ask(ControlRequest::Kind::drain, 3);
  members.run_step(2, 1);
  members.bring_up(2, {0, 1, 2, 3});
  CHECK(head.keeper.discarded.size() == 1);
  REQUIRE(head.seen[0].saves.size() == 2);
  CHECK(head.seen[0].saves[1].step == 2);
}

TEST_CASE("who wants to leave stays where its loss is one too many", "[actors][members]") {
  Members members;
  Head& head = members.head;
  head.tell(std::make_shared<const scheduler::TemplateSet>());  // Nothing can be cut anew.
  head.plan(0);
  members.run_step(1, 1);
  head.plan(1);
  const bool by_signal = GENERATE(false, true), is_asked = GENERATE(true, false);
  if (!by_signal && !is_asked) return;
  if (is_asked) members.ask(ControlRequest::Kind::drain, 3);
  if (by_signal) {
    head.tell(failed_atom::value, NodeId{3}, Error{Errc::cancelled, "stopped by SIGTERM", {}, {}});
    head.pass(600ms, {0, 1, 2, 3});
  }
  members.lose(1);
  CHECK_FALSE(head.ended);
  CHECK(
      (head.seen[3].configurations.back().plan.nodes() == std::set<NodeId>{NodeId{2}, NodeId{3}}));
  // Who asked is told, and the node.
  CHECK(says(members.log(),
             "node 3 cannot leave: no layout works without it: node 1 (host, pid 101) was lost") ==
        !by_signal);
  CHECK(head.seen[3].leaves.back().empty() == !by_signal);
  members.bring_up(2, {0, 2, 3});
  // Its process ends in any case: all is saved before that.
  CHECK(head.seen[2].saves.size() == (by_signal ? 1 : 0));
}

TEST_CASE("nobody waits for a node that still opens its data, and the log says why",
          "[actors][members]") {
  Members members([](job::Job& job) {  // Any of its nodes may be lost.
    job.parallel.layout.pipelines.clear();
    for (std::int32_t node = 0; node < 4; ++node)
      job.parallel.layout.pipelines.push_back({{node, 0, {{"vision", {}}, {"llm", {}}}}});
  });
  Head& head = members.head;
  head.plan(0);
  members.lose(1);
  CHECK_FALSE(says(members.log(), "nobody waits"));
  members.bring_up(2, {0, 2, 3});
  head.plan(0);
  const bool has_trained = GENERATE(false, true);
  if (has_trained) {
    head.system.pass(1000ms);
    members.run_step(1, 2);
  }
  head.join("another");
  members.lose(3);
  REQUIRE(head.seen[0].configurations.size() == 3);
  CHECK((head.seen[0].configurations[2].plan.nodes() == std::set<NodeId>{NodeId{0}, NodeId{2}}));
  CHECK(says(members.log(),
             has_trained
                 ? "the job goes on without it; nobody waits for node 1 (another, pid 104), "
                   "still opening data: each second of that would lose 6 samples, and who "
                   "comes later gets work then"
                 : "; nobody waits for node 1 (another, pid 104), still opening data: who "
                   "comes later gets work then"));
}

TEST_CASE("of several layouts the one that loses the fewest samples is taken up",
          "[actors][members]") {
  // So slow that nothing is trained until nodes change again, or as fast as a machine's memory.
  const bool is_slow = GENERATE(true, false);
  Members members;
  Head& head = members.head;
  members.know_network(is_slow ? 1e-15 : 1);
  head.plan(0);
  head.system.pass(1000ms);
  members.run_step(1, 1);
  head.plan(1);
  members.lose(1);
  const Configuration& next = head.seen[0].configurations.back();
  CHECK(next.epoch_number == 2);
  CHECK(next.plan.nodes().contains(NodeId{0}) == !is_slow);
  members.bring_up(2, {0, 2, 3});
  CHECK(says(members.log(), "lose the fewest samples in the 60 min until nodes change again: "));
}

TEST_CASE("a layout whose nodes do not see all data is left out, also where it would lose less",
          "[actors][members]") {
  Members members;
  Head& head = members.head;
  members.know_network(1e-15);  // What survives whole is preferred, and has no work for node 0.
  head.plan(0);
  head.system.pass(1000ms);
  members.run_step(1, 1);
  head.plan(1);
  head.resources.setup.job.data.sources = {{"llava", "samples.json", "", {0}}};
  members.lose(1);
  REQUIRE(head.seen[0].configurations.size() == 2);
  CHECK(head.seen[0].configurations.back().plan.nodes().contains(NodeId{0}));
  members.bring_up(2, {0, 2, 3});
  CHECK(says(members.log(), " cannot be: no node of the layout sees data.sources[0]"));
  CHECK_FALSE(head.ended);
}

TEST_CASE("a node that nobody needs waits until somebody is lost", "[actors][members]") {
  Members members;
  Head& head = members.head;
  head.tell(std::make_shared<const scheduler::TemplateSet>());  // Nothing can be cut anew.
  members.replace_one();
  members.run_step(1, 2);
  CHECK(head.seen[0].configurations.size() == 2);
  CHECK(says(members.log(), "node 1 joined and waits for work"));
  CHECK(head.scheduler.asked >= 2);  // Training goes on.
  const auto status = observe::read_status(members.ask(ControlRequest::Kind::status)).value();
  CHECK(status.nodes[1].state == "waiting for work");
}

// Window: a node that is not ready yet
TEST_CASE("what happens to a node that is not ready yet is no loss", "[actors][members][errors]") {
  Members members([](job::Job& job) { job.cluster.open_timeout_s = 5; });
  Head& head = members.head;
  head.plan(0);
  members.lose(1);
  members.bring_up(2, {0, 2, 3});
  head.join("another");
  SECTION("its process ends") {
    caf::anon_send_exit(head.nodes[1], caf::exit_reason::kill);
    head.system.run();
    head.system.pass(400ms);
  }
  SECTION("it cannot open its data") {
    head.tell(failed_atom::value, NodeId{1}, Error{Errc::not_found, "no data here", "x", ""});
    CHECK(says(members.log(), "no data here"));
  }
  SECTION("it has other data") { head.ready(1, {61, 7}); }
  SECTION("it has another plug-in") { head.ready(1, {60, 7}, {{"mine.so", 1}}); }
  SECTION("it takes too long") {
    head.pass(3s, {0, 1, 2, 3});
    CHECK(head.seen[1].refusals.empty());
    head.pass(3s, {0, 1, 2, 3});
    CHECK(says(head.seen[1].refusals.at(0).fix, "raise cluster.open_timeout_s"));
  }
  CHECK_FALSE(head.ended);
  CHECK(says(members.log(), "did not join"));
  CHECK(head.seen[0].configurations.size() == 2);
  CHECK(head.join("a third") == "1");
}

TEST_CASE("a node that is drained gives its state away and ends well", "[actors][members]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  CHECK(says(members.ask(ControlRequest::Kind::drain, 3), "leaves before the next step"));
  CHECK(head.seen[0].configurations.size() == 1);
  members.run_step(1, 1);
  for (std::size_t id = 0; id < 4; ++id) {
    REQUIRE(head.seen[id].configurations.size() == 2);
    CHECK_FALSE(head.seen[id].configurations[1].plan.nodes().contains(NodeId{3}));
  }
  CHECK(head.seen[3].stops.empty());
  members.bring_up(2, {0, 1, 2, 3});
  CHECK((head.seen[3].stops == std::vector<std::string>{"it has left the job, which goes on"}));
  CHECK(head.seen[3].exit_codes.back() == 0);
  CHECK(head.recorder.steps.size() == 1);  // No step is lost.
  CHECK(head.scheduler.next.back() == 1);
  head.plan(1);
  members.run_step(2, 2);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].kind == "drained");
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{3}}));
  CHECK(head.recorder.steps[1]->metrics.nodes == 3);
}

TEST_CASE("a node that joins and is drained before it works is told as drained alone",
          "[actors][members]") {
  Members members;
  Head& head = members.head;
  members.replace_one();  // During step 1.
  CHECK(says(members.ask(ControlRequest::Kind::drain, 1), "leaves before the next step"));
  const bool is_loss = GENERATE(false, true);  // Of another one, meanwhile.
  if (is_loss) {
    members.lose(0);
    members.bring_up(3, {1, 2, 3});
    members.bring_up(4, {1, 2, 3});
    head.plan(0);
    members.run_step(1, 4);
  } else {
    members.run_step(1, 2);
    members.bring_up(3, {0, 1, 2, 3});
    head.plan(1);
    members.run_step(2, 3);
  }
  CHECK(head.seen[1].exit_codes.back() == 0);
  REQUIRE_FALSE(head.recorder.events.empty());
  for (const observe::RunEvent& event : head.recorder.events) CHECK(event.kind != "joined");
  const observe::RunEvent& last = head.recorder.events.back();
  CHECK(last.kind == "drained");
  CHECK(last.why == "node 1 leaves: troupe ctl asks for it");
}

TEST_CASE("who drains a node below the minimum of nodes hears what follows", "[actors][members]") {
  const auto least = GENERATE(3, 4);
  Members members([least](job::Job& job) {
    job.cluster.min_nodes = least;
    job.recovery.wait_for_nodes_s = 30;
  });
  Head& head = members.head;
  head.plan(0);
  const std::string words =
      "; then 3 of at least 4 nodes (cluster.min_nodes) are left: the job waits 30 s for others "
      "(recovery.wait_for_nodes_s), then saves and ends";
  CHECK(members.ask(ControlRequest::Kind::drain, 3) ==
        "node 3 leaves before the next step" + (least == 4 ? words : std::string()));
  CHECK(says(members.log(), "troupe ctl asks for it" + words) == (least == 4));
  CHECK((head.seen[3].leaves == std::vector<std::string>{"troupe ctl asks for it"}));
}

TEST_CASE("a node that slows down is named, and leaves where the job says so",
          "[actors][members]") {
  const bool drains = GENERATE(false, true);
  Members members([drains](job::Job& job) { job.recovery.drain_slow = drains; }, 99);
  Head& head = members.head;
  head.profile_stage_ms = 10;
  std::int64_t step = 0;
  const auto run = [&](int steps, std::int64_t ms_of_last) {
    for (; steps > 0 && head.seen[0].configurations.size() == 1; --steps) {
      head.plan(step++);
      for (std::size_t device = 0; device < 4; ++device) head.prepared(device, step, 1, 1);
      for (std::size_t device = 0; device < 4; ++device)
        head.finished_in(device, step, device == 3 ? ms_of_last : 10);
    }
  };
  run(25, 10);
  CHECK(head.recorder.events.empty());
  CHECK(head.scheduler.times.empty());
  run(25, 40);
  REQUIRE_FALSE(head.recorder.events.empty());
  CHECK(head.recorder.events[0].kind == "slow");
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{3}}));
  CHECK(says(head.recorder.events[0].why, "4.0 times as long for the same work"));
  CHECK(says(members.log(), "node 3 (host, pid 103) has slowed down"));
  CHECK(says(members.log(), "ctl RUN drain 3") == !drains);
  CHECK(says(members.log(), "it gets fewer samples until it is as fast again") == !drains);
  REQUIRE(head.seen[0].configurations.size() == (drains ? 2 : 1));
  if (!drains) return;
  CHECK_FALSE(head.seen[0].configurations[1].plan.nodes().contains(NodeId{3}));
  members.bring_up(2, {0, 1, 2, 3});
  CHECK((head.seen[3].stops == std::vector<std::string>{"it has left the job, which goes on"}));
  CHECK(head.seen[3].exit_codes.back() == 0);
}

TEST_CASE("a node that dies while it is drained is lost", "[actors][members]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  members.ask(ControlRequest::Kind::drain, 1);
  members.run_step(1, 1);
  members.lose(1);
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].configurations.back().epoch_number == 3);
  members.bring_up(3, {0, 2, 3});
  head.plan(1);
  members.run_step(2, 3);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].kind == "lost");
}

TEST_CASE("who cannot be done without does not leave, also while a layout comes up",
          "[actors][members][errors]") {
  Members members;
  Head& head = members.head;
  const bool may_cut_anew = GENERATE(true, false);
  if (!may_cut_anew) head.tell(std::make_shared<const scheduler::TemplateSet>());
  head.plan(0);
  members.lose(1);  // Where nothing is cut anew all that works is nodes 2 and 3.
  REQUIRE(head.seen[2].configurations.size() == 2);
  const std::string answer = members.ask(ControlRequest::Kind::drain, 2);
  CHECK(says(answer, "no: ") == !may_cut_anew);
  if (!may_cut_anew) CHECK(says(answer, "; fix: start the job again"));
}

TEST_CASE("nobody leaves a job that has not begun", "[actors][members][errors]") {
  Head head;
  head.join("host");
  CHECK(says(head.ask({ControlRequest::Kind::drain, NodeId{0}}),
             "no: the job has not begun; fix: ask again once it trains"));
}

TEST_CASE("a job that promises to bear losses says which templates stand behind",
          "[actors][members]") {
  const auto promised = GENERATE(0, 1);
  Members members([&](job::Job& job) { job.cluster.fault_tolerance = promised; });
  CHECK(says(members.log(), "templates for losses and joins: pipelines of 1, 2, 3 and 4 nodes") ==
        (promised == 1));
  members.head.tell(std::make_shared<const scheduler::TemplateSet>());
  CHECK(says(members.log(), "no templates, so that losses go on from what survives whole") ==
        (promised == 1));
}

}  // namespace
}  // namespace troupe::actors
