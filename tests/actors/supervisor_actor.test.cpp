#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_actor.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "tests/actors/head_fixture.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;
using Names = std::vector<std::string>;

// ---- joining

TEST_CASE("nodes get places in order, or those they ask for", "[actors]") {
  Head head;
  CHECK(head.join("a") == "0");
  CHECK(head.join("b", 2) == "2");
  CHECK(head.join("c") == "1");
  CHECK(head.join("d", 2) == "node 2 has joined already");
  CHECK(exit_code(head.refusal) == 1);  // It may be free soon.
  CHECK(head.join("d", 4) == "node 4 does not exist");
  CHECK(exit_code(head.refusal) == 2);
  CHECK(head.refusal.where == "--node");
  CHECK(says(head.refusal.fix, "take a free id below 4"));
  CHECK(says(head.join("d", -1, "1.0 (def)"),
             "it is build 1.0 (def) of troupe, the job runs 1.0 (abc)"));
  CHECK(exit_code(head.refusal) == 2);
  CHECK(says(head.refusal.fix, "build the same sources on every machine"));
  CHECK(head.join("d") == "3");
  CHECK(head.join("e") == "all nodes that are not the head's own have joined already");
  CHECK(says(head.refusal.fix, "cluster.nodes"));
}

TEST_CASE("who joins by hand leaves the head's own nodes their places", "[actors]") {
  Head head;
  head.resources.setup.job.cluster.local_nodes = 2;
  CHECK(head.join("far") == "2");
  CHECK(head.join("here", 0) == "0");
  CHECK(head.join("far") == "3");
  CHECK(says(head.join("far"), "have joined already"));
  CHECK(head.join("here", 1) == "1");
}

TEST_CASE("nobody joins a job whose places are taken", "[actors][errors]") {
  Head head;
  head.start_training();
  CHECK(head.join("late") == "all nodes that are not the head's own have joined already");
  CHECK(says(head.refusal.fix, "cluster.nodes"));
  CHECK(exit_code(head.refusal) == 1);
  CHECK(head.join("late", 2) == "node 2 has joined already");
}

TEST_CASE("a roll call names the node that did not come in time", "[actors][errors]") {
  Head head;
  for (const std::size_t id : {0u, 1u, 3u}) {
    head.join("host" + std::to_string(id), static_cast<std::int32_t>(id));
    head.ready(id);
  }
  head.system.pass(1900ms);
  CHECK_FALSE(head.ended);
  head.system.pass(400ms);

  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, "3 of 4 nodes joined"));
  CHECK(says(head.ended->message, "host3, pid 102"));
  CHECK(says(head.ended->message, "missing: node 2"));
  CHECK(says(head.ended->message, "troupe node --join 127.0.0.1:7000"));
  // Those who came hear it too.
  CHECK(head.seen[0].stops == Names{head.ended->message});
}

TEST_CASE("a roll call tells nodes that are not ready from those that joined", "[actors][errors]") {
  Head head;
  for (const std::size_t id : {0u, 1u, 2u}) head.join("host" + std::to_string(id));
  head.ready(1);
  SECTION("some are missing") {
    head.system.pass(2300ms);
    REQUIRE(head.ended);
    CHECK(
        says(head.ended->message,
             "1 of 4 nodes joined; here: node 1 (host1, pid 101); still opening data and devices: "
             "node 0 (host0, pid 100), node 2 (host2, pid 102); missing: node 3"));
  }
  SECTION("all are there") {
    head.join("host3");
    head.ready(3);
    head.system.pass(2300ms);
    REQUIRE(head.ended);
    CHECK(says(head.ended->message, "2 of 4 nodes joined"));
    CHECK_FALSE(says(head.ended->message, "missing"));
    CHECK(says(head.ended->message, "load and the disks of the nodes that are not ready"));
    CHECK(says(head.ended->message, "raise cluster.open_timeout_s"));
  }
}

TEST_CASE("a node of the head's own that dies before the job begins is named at once",
          "[actors][errors]") {
  Head head(2, [](job::Job& job) { job.cluster.local_nodes = 2; });
  for (const std::int32_t id : {0, 1}) head.join("host" + std::to_string(id), id);
  head.ready(0);
  caf::anon_send_exit(head.nodes[1], caf::exit_reason::kill);
  head.system.pass(400ms);
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "node 1 (host1, pid 101) was lost"));
}

// Window: nodes join
TEST_CASE("another node takes the place of one that dies before the job begins",
          "[actors][errors]") {
  Head head;
  for (const std::size_t id : {0u, 1u, 2u}) head.join("host" + std::to_string(id));
  for (const std::size_t id : {0u, 1u, 2u}) head.ready(id);
  const bool is_ready = GENERATE(false, true);
  if (is_ready) {
    caf::anon_send_exit(head.nodes[1], caf::exit_reason::kill);
  } else {
    head.join("host3");
    caf::anon_send_exit(head.nodes[3], caf::exit_reason::kill);
  }
  head.system.pass(400ms);
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].configurations.empty());
  SECTION("one comes") {
    const std::size_t place = is_ready ? 1 : 3;
    CHECK(head.join("another") == std::to_string(place));
    head.ready(place);
    if (is_ready) {
      head.join("host3");
      head.ready(3);
    }
    CHECK_FALSE(head.ended);
    CHECK(head.seen[0].configurations.size() == 1);
  }
  SECTION("nobody comes") {
    head.system.pass(2300ms);
    REQUIRE(head.ended);
    CHECK(says(head.ended->message, is_ready ? "2 of 4 nodes joined" : "3 of 4 nodes joined"));
    CHECK(says(head.ended->message, is_ready ? "lost: node 1 (host1, pid 101); missing: node 3"
                                             : "lost: node 3 (host3, pid 103)"));
    CHECK(says(head.ended->message, "start the missing nodes"));
  }
}

TEST_CASE("a process that ends before it joined ends the job at once", "[actors][errors]") {
  Head head;
  head.tell(exited_atom::value, std::int32_t{4711}, std::string("exited with code 3"),
            std::int32_t{0});
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "pid 4711) exited with code 3 before it joined"));
}

TEST_CASE("a node with media of another size is refused, also where the head has none",
          "[actors][errors]") {
  Head head;
  head.resources.data.media = {{"a.png", -1}};
  for (const char* host : {"zero", "one", "two"}) head.join(host);
  head.ready(1, {60, 7, {{"a.png", -1}}});
  head.ready(0, {60, 7, {{"a.png", 12}}});
  CHECK_FALSE(head.ended);
  head.ready(2, {60, 7, {{"a.png", 13}}});
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 3);
  CHECK(says(head.ended->message,
             "node 2 (two, pid 102) has other data: it has 'a.png' with 13 bytes, others with 12"));
}

TEST_CASE("the layout goes to all nodes, training begins when all have applied it", "[actors]") {
  Head head;
  head.join_all();
  for (const NodeSeen& node : head.seen) {
    REQUIRE(node.configurations.size() == 1);
    CHECK(node.configurations[0].epoch_number == 1);
    CHECK(node.configurations[0].nodes.size() == 5);  // The head is one more peer.
  }
  for (std::size_t id = 0; id < 3; ++id)
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{1}, 0.0);
  CHECK(head.seen[0].settled.empty());  // One of them may still fail.
  head.tell(fetched_atom::value, NodeId{3}, EpochNumber{1}, 0.0);
  for (const NodeSeen& node : head.seen) CHECK(node.settled == std::vector<EpochNumber>{1});
  for (std::size_t id = 0; id < 3; ++id) head.tell(applied_atom::value, NodeId{id}, EpochNumber{1});
  head.tell(applied_atom::value, NodeId{3}, EpochNumber{0});  // Of an older layout.
  CHECK(head.scheduler.begins.empty());
  head.tell(applied_atom::value, NodeId{3}, EpochNumber{1});
  CHECK(head.scheduler.begins.size() == 1);
  CHECK(head.scheduler.asked == 1);
}

// ---- steps

TEST_CASE("PREPARED of all devices becomes one COMMIT with clip and learning rate", "[actors]") {
  Head head;
  head.start_training();
  head.plan(0);
  // Each node gets the plan with the actions of its own device alone.
  CHECK(head.seen[1].plans.at(0).actions[0].empty());
  CHECK_FALSE(head.seen[1].plans.at(0).actions[1].empty());
  CHECK(head.scheduler.asked == 2);  // One step ahead.

  head.prepared(0, 1, 9);
  head.prepared(1, 1, 16, 6);
  head.prepared(1, 1, 16, 6);  // A repeat counts once.
  head.prepared(2, 1, 0);
  CHECK(head.seen[0].decisions.empty());
  head.prepared(3, 1, 0, 4);

  // By hand: norm sqrt(9 + 16) = 5, clipped to 1: 1 / (5 + 1e-6); loss (6 + 4) / tokens.
  for (const NodeSeen& node : head.seen) {
    REQUIRE(node.decisions.size() == 1);
    CHECK(node.decisions[0].commit);
    CHECK(node.decisions[0].step == 1);
    CHECK(std::abs(node.decisions[0].clip - 0.2) < 1e-6);
    CHECK(node.decisions[0].learning_rate == 0.5);
  }
  CHECK(head.recorder.steps.empty());
  head.system.pass(100ms);
  for (std::size_t device = 0; device < 4; ++device) head.finished(device, 1);
  REQUIRE(head.recorder.steps.size() == 1);
  const StepRecord& record = *head.recorder.steps[0];
  CHECK(record.metrics.loss == 10.0 / static_cast<double>(head.trained_tokens));
  CHECK(record.metrics.grad_norm == 5);
  CHECK(record.metrics.step_ms == 100);
  CHECK(record.ids == Names{"s0", "s1", "s2", "s3", "s4", "s5"});
}

TEST_CASE("the scheduler hears what a step took before the next one is asked for", "[actors]") {
  Head head;
  head.start_training();
  head.plan(0);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 1, 1, 1);
  CHECK(head.scheduler.told == 0);
  for (std::size_t device = 0; device < 4; ++device) head.finished(device, 1);
  CHECK(head.scheduler.told == 1);
}

TEST_CASE("one device with a loss that is no number makes all DISCARD", "[actors]") {
  Head head;
  head.start_training();
  head.plan(0);
  for (std::size_t device = 0; device < 3; ++device) head.prepared(device, 1, 1, 1);
  head.prepared(3, 1, 1, std::numeric_limits<double>::quiet_NaN());

  for (const NodeSeen& node : head.seen) {
    REQUIRE(node.decisions.size() == 1);
    CHECK_FALSE(node.decisions[0].commit);
  }
  for (std::size_t device = 0; device < 4; ++device) head.finished(device, 1);
  CHECK(head.recorder.steps.at(0)->ids.empty());  // Nobody trained on them.
  CHECK(says(head.recorder.steps.at(0)->metrics.skipped, "not finite"));
  CHECK_FALSE(head.ended);

  // A second one in a row is as many as this job allows.
  head.plan(1);
  head.run_step(2, std::numeric_limits<double>::infinity());
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "2 steps in a row were skipped"));
}

TEST_CASE("a step ahead waits in the devices, and steps are recorded in order", "[actors]") {
  Head head(3);
  head.start_training();
  head.plan(0);
  head.plan(1);
  CHECK(head.seen[0].plans.size() == 2);
  CHECK(head.scheduler.asked == 2);  // Two steps are out: no more room.
  head.run_step(1);
  CHECK(head.recorder.steps.size() == 1);
  CHECK(head.scheduler.asked == 3);
  head.run_step(2);
  CHECK(head.recorder.steps.size() == 2);
  CHECK(head.recorder.steps[1]->metrics.step == 2);
  CHECK(head.recorder.steps[1]->metrics.profile_step_ms == 11);
  CHECK(head.recorder.steps[1]->metrics.calibrated_step_ms == 12);
}

TEST_CASE("what a step waited for is planning as far as planning took, then data", "[actors]") {
  Head head(4);
  head.start_training();
  head.plan(0);
  head.plan(1, 40);
  head.system.pass(100ms);
  head.run_step(1);
  head.run_step(2);  // Its plan was there before it was its turn.
  head.system.pass(50ms);
  head.plan(2, 30);  // Devices idle for 50 ms: 30 for the plan, the others for its samples.
  head.run_step(3);
  head.system.pass(50ms);
  head.plan(3, 80);  // Planning began while the step before ran.
  head.run_step(4);
  REQUIRE(head.recorder.steps.size() == 4);
  using Waits = std::vector<double>;
  Waits plan, data;
  for (const auto& record : head.recorder.steps) {
    plan.push_back(record->metrics.plan_wait_ms);
    data.push_back(record->metrics.data_wait_ms);
  }
  CHECK(plan == Waits{0, 0, 30, 50});
  CHECK(data == Waits{0, 0, 20, 0});
  CHECK(head.recorder.steps[2]->metrics.plan_ms == 30);
}

TEST_CASE("a node with other data ends the job before it starts", "[actors]") {
  Head head;
  head.join("near");
  head.join("far");
  head.ready(0);
  CHECK_FALSE(head.ended);
  head.ready(1, {60, 8});
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 3);
  CHECK(says(head.ended->message, "node 1 (far, pid 101) has other data"));
  CHECK(says(head.ended->message, "--job"));
}

TEST_CASE("reports of another configuration or step count for nothing", "[actors]") {
  Head head;
  head.start_training();
  head.plan(0);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 1, 1, 1, 0);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 5, 1, 1);
  CHECK(head.seen[0].decisions.empty());
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 1, 1, 1);
  CHECK(head.seen[0].decisions.size() == 1);
  for (std::size_t device = 0; device < 4; ++device) head.finished(device, 1, 0);
  CHECK(head.recorder.steps.empty());
  for (std::size_t device = 0; device < 4; ++device) head.finished(device, 1);
  CHECK(head.recorder.steps.size() == 1);
}

TEST_CASE("a batch without good samples is a step that no device runs", "[actors]") {
  Head head;
  head.start_training();
  engine::PlannedBatch empty;
  empty.iteration.step = 1;
  empty.iteration.epoch_number = 1;
  head.tell(std::make_shared<const engine::PlannedBatch>(empty));
  CHECK(head.seen[0].plans.empty());
  REQUIRE(head.recorder.steps.size() == 1);
  CHECK(says(head.recorder.steps[0]->metrics.skipped, "no trained tokens"));
  head.plan(1);
  head.run_step(2);
  CHECK(head.recorder.steps.size() == 2);
}

TEST_CASE("holders that disagree after a step end the job", "[actors][errors]") {
  Head head;
  head.start_training();
  head.plan(0);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 1, 1, 1);
  for (std::size_t device = 0; device < 4; ++device)
    head.finished(device, 1, 1, device < 2 ? 8 : 7);
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "disagree after step 1"));
  CHECK(says(head.ended->message, "; nothing is saved: no more than half of the nodes"));
  CHECK(head.seen[0].saves.empty());
}

TEST_CASE("after the last step the parameters are collected, then the job ends", "[actors]") {
  Head head(1);
  head.start_training();
  head.plan(0);
  CHECK(head.scheduler.asked == 1);  // There is no second step to plan.
  head.run_step(1);
  for (const NodeSeen& node : head.seen)
    CHECK((node.collections == std::vector<Collection>{Collection::parameters}));
  for (std::size_t id = 0; id < 4; ++id) {
    CHECK_FALSE(head.ended);
    head.tell(Offers{NodeId{id}, 1, {}});
  }
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 0);
  CHECK(head.ended->message.empty());
  CHECK(head.seen[2].stops == Names{""});
}

TEST_CASE("parameters that cannot be collected end the job with a fix", "[actors][errors]") {
  Head head(1);
  head.recorder.stuck = true;
  head.start_training();
  head.plan(0);
  head.run_step(1);
  for (std::size_t id = 0; id < 4; ++id) head.tell(Offers{NodeId{id}, 1, {}});
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, "the final parameters could not be collected"));
  CHECK(says(head.ended->message, "fix: look at the network between the nodes and this machine"));
}

}  // namespace
}  // namespace troupe::actors
