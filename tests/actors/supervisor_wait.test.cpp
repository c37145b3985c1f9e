// Jobs whose nodes have all of their state when they end or have no layout any more: an older
// checkpoint does not count.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_wait.hpp"

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "engine/profiling/nominal_profile.hpp"
#include "tests/actors/saving_head.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// A job of two pipelines that saves each step, waits ten seconds for nodes and reads a source that
/// node 3 alone sees. Nodes 0 and 1 have all of the model. Step 1 is saved. The head has started
/// the first `own` nodes.
struct OneSees {
  explicit OneSees(std::int32_t own = 0)
      : saving(
            9, [](job::Checkpointing& x) { x.every_steps = 1; },
            [own](job::Job& job) {
              job.recovery.wait_for_nodes_s = 10;
              job.cluster.local_nodes = own;
            }) {
    saving.run_step(1);
    saving.write();
    saving.keep();
    head.resources.setup.job.data.sources = {{"llava", "samples.json", "", {3}}};
  }

  void lose_node_3() {
    head.leave({3});
    head.pass(400ms, {0, 1, 2});
  }

  /// Who is left has written the newest save.
  void save() {
    saving.write({3});
    saving.keep();
  }

  SavingHead saving;
  Head& head = saving.head;
};

// Window: nobody left sees a source of data, or no layout fits them
TEST_CASE("a job with too few nodes for any layout saves what they have, and goes on with others",
          "[actors][recovery]") {
  OneSees job;
  Head& head = job.head;
  job.saving.run_step(2);
  job.lose_node_3();
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].configurations.size() == 1);
  CHECK(job.saving.order().step == 2);
  CHECK(job.saving.order().is_checked);  // No word on step 3 will come that devices could wait for.
  job.save();
  CHECK(says(job.saving.log(),
             "no layout works on the 3 nodes that are left, though all state is there: no node of "
             "the layout sees data.sources[0]"));
  CHECK(says(job.saving.log(),
             "; 4, as before, are enough; the job waits 10 s "
             "(recovery.wait_for_nodes_s) for others, then saves and ends"));
  CHECK(says(head.ask({ControlRequest::Kind::status, {}}), "waiting for more nodes"));
  head.pass(5s, {0, 1, 2});
  head.join("host", 3);
  head.ready(3);
  head.pass(1s, {0, 1, 2, 3});
  REQUIRE(head.seen[0].configurations.size() == 2);
  CHECK(head.seen[0].configurations.back().plan.nodes().contains(NodeId{3}));
  CHECK_FALSE(head.seen[3].configurations.back().moves.empty());
  head.bring_up(2);
  CHECK(head.scheduler.next.back() == 2);
  head.plan(2);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 3, 1, 1, 2);
  for (std::size_t device = 0; device < 4; ++device) head.finished(device, 3, 2);
  CHECK(head.recorder.steps.size() == 3);
  std::vector<std::string> kinds;
  for (const auto& event : head.recorder.events)
    if (event.kind != "checkpoint") kinds.push_back(event.kind);
  CHECK((kinds == std::vector<std::string>{"lost", "joined"}));
  head.pass(12s, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);  // Nobody is waited for any more.
}

TEST_CASE("a job whose batches have no room on the nodes that are left waits for others",
          "[actors][recovery]") {
  OneSees job;
  Head& head = job.head;
  engine::JobSetup& setup = head.resources.setup;
  setup.job.data.sources.clear();  // All see all.
  job.saving.run_step(2);
  const bool has_room = GENERATE(false, true);
  setup.costs = engine::planning_costs(setup, engine::nominal_profile(setup),
                                       Bytes{has_room ? std::int64_t{1} << 30 : 1000})
                    .value();
  if (!has_room)
    CHECK(says(head.ask({ControlRequest::Kind::drain, NodeId{3}}), "pipeline 0 has no room"));
  job.lose_node_3();
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].configurations.size() == (has_room ? 2 : 1));
  CHECK(says(job.saving.log(),
             "no layout works on the 3 nodes that are left, though all state is there: pipeline 0 "
             "has no room for activations beside state") == !has_room);
}

// Window: nobody left sees a source of data, or no layout fits them
TEST_CASE("a job waits for another node in the place of one whose device fails",
          "[actors][recovery]") {
  OneSees job;
  Head& head = job.head;
  job.saving.run_step(2);
  engine::FailedWork failed{0, 1};
  failed.error = {Errc::internal, "CUDA error: uncorrectable ECC error", {}, "look at it"};
  failed.by_device = true;
  head.tell(NodeId{3}, failed);
  CHECK_FALSE(head.ended);
  CHECK(head.seen[3].stops.size() == 1);
  CHECK(job.saving.order().step == 2);
  job.save();
  CHECK(says(head.ask({ControlRequest::Kind::status, {}}), "waiting for more nodes"));
  head.join("host", 3);
  head.ready(3);
  head.pass(1s, {0, 1, 2, 3});
  CHECK(head.seen[0].configurations.size() == 2);
}

TEST_CASE("a job that waits for nodes gives up nobody for messages of a step that has no end",
          "[actors][recovery]") {
  OneSees job;
  Head& head = job.head;
  job.saving.run_step(2);
  head.plan(2);
  job.lose_node_3();
  job.save();
  const IterationPlan& step = head.seen[0].plans.back();
  REQUIRE(step.step == 3);
  const auto& list = step.actions[0];
  const auto sends = std::find_if(list.begin(), list.end(), [](const Action& action) {
    return action.kind == ActionKind::send;
  });
  REQUIRE(sends != list.end());
  engine::AwaitedMessage message{DeviceId{0}};
  message.sent_in.kind = sends->kind;
  message.sent_in.message = sends->message;
  engine::LongWaits sender, receiver;
  sender.waits.push_back({DeviceId{0}, 3, 1, sends - list.begin() + 1, {}, 1000});
  receiver.waits.push_back({DeviceId{1}, 3, 1, 0, {message}, 1000});
  head.tell(NodeId{0}, sender);
  head.tell(NodeId{1}, receiver);
  head.pass(1s, {0, 1, 2});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[1].stops.empty());
}

TEST_CASE("a job that nobody joins in time ends with what its nodes have", "[actors][recovery]") {
  OneSees job;
  Head& head = job.head;
  job.saving.run_step(2);
  job.lose_node_3();
  const bool is_early = GENERATE(true, false);
  if (is_early) job.save();
  head.pass(9s, {0, 1, 2});
  CHECK_FALSE(head.ended);
  head.pass(1600ms, {0, 1, 2});
  CHECK(head.ended.has_value() == is_early);
  if (!is_early) job.save();
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(head.ended->again == 0);
  CHECK(says(head.ended->message, "node 3 (host, pid 103) was lost"));
  CHECK(says(head.ended->message,
             "4, as before, are enough; not enough came within 10 s (recovery.wait_for_nodes_s); "
             "step 2 is saved: the same command goes on from there"));
  const auto lost = std::ranges::find(head.recorder.events, "lost", &observe::RunEvent::kind);
  REQUIRE(lost != head.recorder.events.end());
  CHECK((lost->nodes == std::vector<NodeId>{NodeId{3}}));
  CHECK(lost->waited_ms >= 10'000);
}

TEST_CASE("a job that waits for nodes finishes a step whose COMMIT is known, and ends at a signal",
          "[actors][recovery]") {
  OneSees job;
  Head& head = job.head;
  head.plan(1);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 2, 1, 1);
  job.lose_node_3();
  CHECK(job.saving.order().step == 1);
  for (std::size_t device = 0; device < 3; ++device) head.finished(device, 2);
  CHECK_FALSE(head.ended);
  CHECK(job.saving.order().step == 2);
  head.tell(stop_atom::value, std::int32_t{SIGTERM});
  CHECK_FALSE(head.ended);
  job.save();
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(says(head.ended->message, "stopped by SIGTERM"));
  CHECK(says(head.ended->message, "step 2 is saved: the same command goes on from there"));
}

TEST_CASE(
    "a job that waits for nodes goes on where a layout works without another one that is lost",
    "[actors][recovery]") {
  OneSees job;
  Head& head = job.head;
  head.plan(1);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 2, 1, 1);
  job.lose_node_3();
  // Of other nodes another layout is made, which may give one work that was idle and sees a source.
  // Here what stood in the way is gone, and node 2 is as well; all else is the same.
  head.resources.setup.job.data.sources.clear();
  head.leave({2});
  head.pass(600ms, {0, 1});
  CHECK(head.seen[0].configurations.size() == 1);  // First comes what was decided.
  for (std::size_t device = 0; device < 2; ++device) head.finished(device, 2);
  CHECK(head.recorder.steps.size() == 2);
  head.pass(400ms, {0, 1});
  REQUIRE(head.seen[0].configurations.size() == 2);
  CHECK((head.seen[0].configurations.back().plan.nodes() == std::set{NodeId{0}, NodeId{1}}));
  for (std::size_t id = 0; id < 2; ++id)
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  for (std::size_t id = 0; id < 2; ++id) head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  CHECK(head.scheduler.next.back() == 2);
  job.saving.write({2, 3});
  job.saving.keep();
  head.pass(12s, {0, 1});
  CHECK_FALSE(head.ended);  // Nobody is waited for any more.
}

TEST_CASE("a last copy that is lost while a job waits for nodes is not waited for",
          "[actors][recovery]") {
  OneSees job;
  Head& head = job.head;
  job.saving.run_step(2);
  job.lose_node_3();
  job.save();
  head.leave({2});  // Nodes 0 and 1 have what it had.
  head.pass(400ms, {0, 1});
  CHECK_FALSE(head.ended);
  head.leave({1});
  head.pass(400ms, {0});
  REQUIRE(head.ended);
  CHECK(head.ended->again == 1);
  CHECK(says(head.ended->message, "no other node has "));
  CHECK(says(head.ended->message, "step 2 is saved: the job begins again from there"));
}

TEST_CASE("a job whose own nodes are too few for a layout begins again from what the others save",
          "[actors][recovery]") {
  OneSees job(4);
  Head& head = job.head;
  job.saving.run_step(2);
  job.lose_node_3();
  CHECK_FALSE(head.ended);
  CHECK(job.saving.order().step == 2);
  const bool is_stopped = GENERATE(false, true);
  if (is_stopped) head.tell(stop_atom::value, std::int32_t{SIGTERM});
  job.save();
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(head.ended->again == (is_stopped ? 0 : 1));
  CHECK(says(head.ended->message, is_stopped ? "step 2 is saved: the same command goes on"
                                             : "step 2 is saved: the job begins again from there"));
}

TEST_CASE("who came in the place of one of the head's own is waited for like others",
          "[actors][recovery]") {
  OneSees job;
  Head& head = job.head;
  head.resources.setup.job.cluster.local_nodes = 4;  // Its processes were lost before.
  const bool waits = GENERATE(true, false);
  if (!waits) head.resources.setup.job.recovery.wait_for_nodes_s = 0;
  job.saving.run_step(2);
  job.lose_node_3();
  CHECK(job.saving.order().step == 2);
  job.save();
  CHECK(head.ended.has_value() != waits);
  if (!waits) {
    REQUIRE(head.ended);
    CHECK(head.ended->again == 0);  // It would begin again without that one.
    CHECK(says(head.ended->message, "step 2 is saved: the same command goes on from there"));
    return;
  }
  CHECK(says(head.ask({ControlRequest::Kind::status, {}}), "waiting for more nodes"));
  REQUIRE(head.join(NodeHello{"far", 7, 3, "1.0 (abc)"}) == "3");
  head.ready(3);
  head.pass(1s, {0, 1, 2, 3});
  CHECK(head.seen[0].configurations.size() == 2);
}

TEST_CASE("a job that a broken way ends begins again from what its nodes save",
          "[actors][recovery]") {
  SavingHead saving(
      9, [](job::Checkpointing& x) { x.every_steps = 2; }, one_pipeline);
  Head& head = saving.head;
  saving.run_step(1);
  saving.run_step(2);
  saving.write();
  saving.keep();
  saving.run_step(3);
  head.tell(lost_atom::value, NodeId{1}, NodeId{3}, EpochNumber{1}, std::string("reset"));
  head.pass(800ms, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);
  CHECK(saving.order().step == 3);
  saving.write();
  saving.keep();
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(head.ended->again == 1);
  CHECK(says(head.ended->message, "step 3 is saved: the job begins again from there"));
}

TEST_CASE("a step that hangs in nobody's work ends a job once what came before it is saved",
          "[actors][errors]") {
  SavingHead saving(
      9, [](job::Checkpointing&) {},
      [](job::Job& job) {
        one_pipeline(job);
        job.train.stall_timeout_s = 20;
      });
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  head.pass(19s, {0, 1, 2, 3});
  CHECK(head.seen[0].saves.empty());
  head.pass(1600ms, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == 1);
  saving.write();
  saving.keep();
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(says(head.ended->message, "train.stall_timeout_s: step 2 has not ended for 20 s"));
  CHECK(says(head.ended->message, "step 1 is saved: the same command goes on from there"));
}

// Window: a layout does not come up
TEST_CASE("a layout that nobody takes up ends a job with what its nodes had before",
          "[actors][recovery]") {
  SavingHead saving(9, [](job::Checkpointing&) {});
  Head& head = saving.head;
  saving.run_step(1);
  head.leave({3});
  REQUIRE(head.seen[0].configurations.size() == 2);
  head.pass(1800ms, {0, 1, 2});
  CHECK(head.seen[0].saves.empty());
  head.pass(600ms, {0, 1, 2});
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == 1);
  saving.write({3});
  saving.keep();
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(says(head.ended->message, "not set up within 2 s; still at it: node 0"));
  CHECK(says(head.ended->message, "step 1 is saved: the same command goes on from there"));
}

}  // namespace
}  // namespace troupe::actors
