// What plans are told of how fast nodes are.

#include "actors/supervisor/supervisor_speeds.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "tests/actors/members_fixture.hpp"

namespace troupe::actors {
namespace {

/// So many steps behind `step`, of 10 ms on each of four devices but the last.
void run_steps(Head& head, std::int64_t& step, int steps, std::int64_t ms_of_last) {
  for (; steps > 0; --steps) {
    head.plan(step++);
    for (std::size_t device = 0; device < 4; ++device) head.prepared(device, step, 1, 1);
    for (std::size_t device = 0; device < 4; ++device)
      head.finished_in(device, step, device == 3 ? ms_of_last : 10);
  }
}

TEST_CASE("plans hear how slow a node is, until it is as fast as it was", "[actors][members]") {
  Members members({}, 199);
  Head& head = members.head;
  head.profile_stage_ms = 10;
  std::int64_t step = 0;
  const auto run = [&](int steps, std::int64_t ms_of_last) {
    run_steps(head, step, steps, ms_of_last);
  };
  run(25, 10);
  run(25, 40);
  REQUIRE(head.scheduler.times.size() == 1);
  CHECK(head.scheduler.times.at(NodeId{3}) == Catch::Approx(4));
  run(25, 80);  // It was named long ago.
  CHECK(head.scheduler.times.at(NodeId{3}) == Catch::Approx(8));
  CHECK(head.recorder.events.size() == 1);
  run(25, 10);
  CHECK((head.scheduler.times == std::map<NodeId, double>{{NodeId{3}, 1}}));
  REQUIRE(head.recorder.events.size() == 2);
  CHECK(head.recorder.events[1].kind == "fast-again");
  CHECK((head.recorder.events[1].nodes == std::vector<NodeId>{NodeId{3}}));
  CHECK(says(members.log(), "as fast as it was again, and gets as many samples as before"));
}

TEST_CASE("what another head would begin without is put down now and then, and when it changes",
          "[actors][members]") {
  const bool waits = GENERATE(true, false);  // Nodes, for another head.
  Members members([&](job::Job& job) { job.cluster.head_timeout_s = waits ? 60 : 0; }, 199);
  Head& head = members.head;
  head.profile_stage_ms = 10;
  head.scheduler.learned.profile = "then";
  head.resources.resume.node_changes = {3, 5000};  // Under the head from which this one took over.
  std::int64_t step = 0;
  const auto run = [&](int steps, std::int64_t ms_of_last) {
    run_steps(head, step, steps, ms_of_last);
  };
  std::map<std::int64_t, HeadMemory> written;  // By the step that it was written with.
  const auto look = [&] {
    for (const StepRecordPtr& record : std::exchange(head.recorder.steps, {}))
      if (record->for_next_head) written[record->metrics.step] = *record->for_next_head;
    return written.size();
  };
  run(25, 10);
  CHECK(look() == (waits ? 1u : 0u));
  if (!waits) return;
  CHECK(written.at(2).step == 1);
  CHECK(written.at(2).costs.profile == "then");
  CHECK(written.at(2).slow.empty());
  head.pass(std::chrono::seconds(11), {0, 1, 2, 3});
  run(2, 10);
  CHECK(look() == 2);
  CHECK(written.at(27).step == 26);
  CHECK(written.at(2).changes.count == 3);
  CHECK(written.at(2).changes.elapsed_ms == Catch::Approx(5000).margin(500));
  CHECK(written.at(27).changes.elapsed_ms == Catch::Approx(16000).margin(1000));
  run(25, 40);
  REQUIRE(look() == 3);  // No time has passed: node 3 was found slow.
  REQUIRE(written.rbegin()->second.slow.size() == 1);
  const SlowNodeNote& slow = written.rbegin()->second.slow.front();
  CHECK(slow.node == NodeId{3});
  CHECK(slow.times == Catch::Approx(4));
  CHECK(slow.own_usual == Catch::Approx(1));
  CHECK(slow.beside_usual == Catch::Approx(1));
}

TEST_CASE("plans hear how fast a node says that it is when it joins", "[actors][members]") {
  const double probe_ms = GENERATE(0.0, 0.5, 0.9, 1.1, 2.0);
  const bool is_alike = probe_ms != 0.5 && probe_ms != 2.0;
  Members members;
  Head& head = members.head;
  head.resources.setup.profile.probe_ms = 1;
  head.plan(0);
  members.lose(1);
  head.join("another");
  NodeReady ready = head.seen[0].configurations[0].nodes[1];  // Its transport is the same one.
  ready.data = {60, 7};
  ready.probe_ms = probe_ms;
  caf::send_as(head.nodes[1], head.actor, std::move(ready));
  head.system.run();
  members.bring_up(2, {0, 2, 3});
  members.bring_up(3, {0, 1, 2, 3});  // No step has ended by now.
  REQUIRE(head.scheduler.begins.back().plan.nodes().contains(NodeId{1}));
  CHECK(head.scheduler.times.empty() == is_alike);
  CHECK(says(members.log(), "as long as the machine that the profile is of") == !is_alike);
  if (is_alike) return;
  CHECK((head.scheduler.times == std::map<NodeId, double>{{NodeId{1}, probe_ms}}));
  // Who comes after it may be as fast as any.
  head.kill(104);
  CHECK(head.scheduler.times.at(NodeId{1}) == 1);
}

TEST_CASE("a slow node that could not be done without leaves once it can", "[actors][members]") {
  const bool drains = GENERATE(true, false);
  Members members(
      [drains](job::Job& job) {
        one_pipeline(job);
        job.cluster.fault_tolerance = 1;
        job.recovery.drain_slow = drains;
      },
      199);
  Head& head = members.head;
  head.profile_stage_ms = 10;
  head.tell(std::make_shared<const scheduler::TemplateSet>());  // Nothing can be cut anew.
  std::int64_t step = 0;
  run_steps(head, step, 25, 10);
  run_steps(head, step, 25, 40);
  REQUIRE(head.seen[0].configurations.size() == 1);
  CHECK(says(members.log(), "it stays in the job: ") == drains);
  head.tell(members.templates);
  members.lose(1);
  REQUIRE(head.seen[0].configurations.size() == 2);
  CHECK(head.seen[0].configurations.back().plan.nodes().contains(NodeId{3}));
  members.bring_up(2, {0, 2, 3});
  CHECK(says(members.log(), "node 3 (host, pid 103) leaves before the next step: it takes ") ==
        drains);
  REQUIRE(head.seen[0].configurations.size() == (drains ? 3 : 2));
  CHECK(head.seen[0].configurations.back().plan.nodes().contains(NodeId{3}) == !drains);
}

TEST_CASE("who leaves takes its slowness along", "[actors][members]") {
  Members members({}, 199);
  Head& head = members.head;
  head.profile_stage_ms = 10;
  for (std::int64_t step = 1; step <= 50; ++step) {
    head.plan(step - 1);
    for (std::size_t device = 0; device < 4; ++device) head.prepared(device, step, 1, 1);
    for (std::size_t device = 0; device < 4; ++device)
      head.finished_in(device, step, device == 3 && step > 25 ? 40 : 10);
  }
  REQUIRE(head.scheduler.times.at(NodeId{3}) == Catch::Approx(4));
  members.lose(3);
  CHECK(head.scheduler.times.at(NodeId{3}) == 1);
}

}  // namespace
}  // namespace troupe::actors
