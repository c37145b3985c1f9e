#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_end.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <csignal>

#include "tests/actors/saving_head.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a node lost before COMMIT leaves the step undecided and is named", "[actors][errors]") {
  Head head(2, one_pipeline);
  head.start_training();
  head.plan(0);
  for (std::size_t device = 0; device < 3; ++device) head.prepared(device, 1, 1, 1);
  caf::anon_send_exit(head.nodes[3], caf::exit_reason::kill);
  head.system.run();
  CHECK_FALSE(head.ended);  // Its exit status may still come and is the better reason.
  head.prepared(3, 1, 1, 1, 0);
  head.system.pass(400ms);

  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, "node 3 (host, pid 103) was lost"));
  CHECK(says(head.ended->message, "step 1 was not finished"));
  REQUIRE(head.recorder.events.size() == 1);
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{3}}));
  CHECK(head.recorder.events[0].tolerance_left == 0);  // Not all state is there: none more.
  for (std::size_t id = 0; id < 3; ++id) {
    CHECK(head.seen[id].decisions.empty());
    CHECK(head.seen[id].stops.size() == 1);
  }
}

TEST_CASE("a node lost after COMMIT does not take the word back", "[actors][errors]") {
  Head head(2, one_pipeline);
  head.start_training();
  head.plan(0);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 1, 1, 1);
  for (std::size_t device = 0; device < 3; ++device) head.finished(device, 1);
  head.lose(3);

  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "node 3 (host, pid 103) was lost: was killed by signal 9"));
  for (std::size_t id = 0; id < 3; ++id) {
    REQUIRE(head.seen[id].decisions.size() == 1);
    CHECK(head.seen[id].decisions[0].commit);
  }
  CHECK(head.recorder.steps.empty());  // Not all have finished it.
}

// Window: final tensors are offered
TEST_CASE("a node lost while the model is written does no harm", "[actors]") {
  Head head(1);
  head.recorder.busy = true;
  head.start_training();
  head.plan(0);
  head.run_step(1);
  for (std::size_t id = 0; id < 4; ++id) head.tell(Offers{NodeId{id}, 1, {}});
  REQUIRE(head.recorder.collections.size() == 1);
  head.lose(3);
  CHECK_FALSE(head.ended);

  SECTION("all had come: the job is done") {
    caf::anon_send(head.actors.recorder, begin_atom::value, Configuration{});
    head.leave({0, 1, 2});
    REQUIRE(head.ended);
    CHECK(head.ended->exit_code == 0);
    REQUIRE(head.recorder.events.size() == 1);
    CHECK(head.recorder.events[0].kind == "lost");
    CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{3}}));
  }
  SECTION("something had not: it is collected from the others") {
    head.tell(failed_atom::value, Error{Errc::transport_failed, "peer 3 is lost", "", ""});
    REQUIRE(head.seen[0].configurations.size() == 2);
    for (const std::size_t id : {0u, 1u, 2u})
      head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
    for (const std::size_t id : {0u, 1u, 2u})
      head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
    CHECK_FALSE(head.ended);  // What is said of the first collection does not count.
    for (const std::size_t id : {0u, 1u, 2u}) {
      CHECK(head.seen[id].collections.size() == 2);
      head.tell(Offers{NodeId{id}, 2, {}});
    }
    CHECK(head.recorder.collections.size() == 2);
    CHECK_FALSE(head.ended);
    caf::anon_send(head.actors.recorder, begin_atom::value, Configuration{});
    head.leave({0, 1, 2});
    REQUIRE(head.ended);
    CHECK(head.ended->exit_code == 0);
    REQUIRE(head.recorder.events.size() == 1);
    CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{3}}));
  }
  SECTION("something had not, and no layout is left: the others save it") {
    head.resources.setup.job.recovery.wait_for_nodes_s = 0;
    head.resources.setup.job.data.sources = {{"llava", "samples.json", "", {3}}};
    head.tell(failed_atom::value, Error{Errc::transport_failed, "peer 3 is lost", "", ""});
    CHECK_FALSE(head.ended);
    REQUIRE(head.seen[0].saves.size() == 1);
    CHECK(head.seen[0].saves[0].step == 1);
    REQUIRE(head.recorder.events.size() == 1);
    CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{3}}));
  }
}

// Window: final tensors are offered
TEST_CASE("tensors that did not come are told before whose they are", "[actors][recovery]") {
  const bool is_lost = GENERATE(true, false);
  Head head(1);
  head.recorder.busy = true;
  head.start_training();
  head.plan(0);
  head.run_step(1);
  for (std::size_t id = 0; id < 4; ++id) head.tell(Offers{NodeId{id}, 1, {}});
  head.tell(failed_atom::value, Error{Errc::transport_failed, "peer 3 is lost", "", ""});
  CHECK_FALSE(head.ended);
  if (is_lost) {
    head.tell(lost_atom::value, NodeId{0}, NodeId{3}, EpochNumber{1}, std::string("reset"));
    head.lose(3);
  }
  head.pass(1s, {0, 1, 2});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].configurations.size() == (is_lost ? 2 : 1));  // They are collected again.
  if (!is_lost)
    for (const NodeSeen& node : head.seen) CHECK_FALSE(node.saves.empty());
}

// Window: final tensors are offered
TEST_CASE("a model that did not come whole does not end a job that waits for nodes",
          "[actors][recovery]") {
  SavingHead saving(1);
  Head& head = saving.head;
  head.recorder.busy = true;
  saving.run_step(1);
  for (std::size_t id = 0; id < 4; ++id) head.tell(Offers{NodeId{id}, 1, {}});
  head.resources.setup.job.data.sources = {{"llava", "samples.json", "", {3}}};
  head.lose(3);
  head.tell(failed_atom::value, Error{Errc::transport_failed, "peer 3 is lost", "", ""});
  caf::anon_send(head.actors.recorder, begin_atom::value, Configuration{});  // It has answered.
  head.system.run();
  REQUIRE_FALSE(head.seen[0].saves.empty());
  saving.write({3});
  saving.keep();
  CHECK_FALSE(head.ended);  // Whom it waits for may bring what no layout can do without.
  for (const std::size_t id : {0u, 1u, 2u}) CHECK(head.seen[id].stops.empty());
}

TEST_CASE("a node lost while the model is written is the reason where it alone had a part of it",
          "[actors][errors]") {
  Head head(1, one_pipeline);
  head.recorder.busy = true;
  head.start_training();
  head.plan(0);
  head.run_step(1);
  for (std::size_t id = 0; id < 4; ++id) head.tell(Offers{NodeId{id}, 1, {}});
  head.lose(3);
  head.tell(failed_atom::value, Error{Errc::transport_failed, "peer 3 is lost", "", ""});
  CHECK(head.seen[0].saves.size() == 1);  // What is left is saved, unless nobody is.
  head.leave({0, 1, 2});
  head.system.pass(400ms);
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, "node 3 (host, pid 103) was lost: was killed by signal 9"));
  CHECK(says(head.ended->message, "no other node has "));
}

TEST_CASE("a device that is lost as its tensors are collected is done without",
          "[actors][recovery]") {
  Head head(1);
  head.start_training();
  head.plan(0);
  head.run_step(1);
  for (std::size_t id = 0; id < 3; ++id) head.tell(Offers{NodeId{id}, 1, {}});
  engine::FailedWork failed{0, 1};
  failed.thrown = "the device failed: CUDA error: uncorrectable ECC error encountered";
  failed.error = {Errc::internal, failed.thrown, {}, "look at this machine's devices"};
  failed.by_device = true;
  head.tell(NodeId{3}, failed);
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].configurations.size() == 2);
  for (const DeviceSlot& device : head.seen[0].configurations[1].plan.devices)
    CHECK(device.node != NodeId{3});
  CHECK(head.seen[3].stops.size() == 1);  // Its process is still there.
}

TEST_CASE("a node lost before it has offered its tensors ends the job", "[actors][errors]") {
  Head head(1, one_pipeline);
  head.start_training();
  head.plan(0);
  head.run_step(1);
  for (std::size_t id = 0; id < 3; ++id) head.tell(Offers{NodeId{id}, 1, {}});
  head.lose(3);
  head.leave({0, 1, 2});
  head.system.pass(400ms);
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, "node 3"));
}

TEST_CASE("a lost node is the reason, not the peers that missed it", "[actors][errors]") {
  Head head(2, one_pipeline);
  head.start_training();
  head.plan(0);
  head.tell(failed_atom::value, NodeId{1},
            Error{Errc::transport_failed, "peer 3 is lost: the connection to it broke", "", ""});
  head.system.pass(200ms);
  CHECK_FALSE(head.ended);
  SECTION("its process tells how it ended") {
    head.lose(3);
    REQUIRE(head.ended);
    CHECK(says(head.ended->message, "node 3 (host, pid 103) was lost: was killed by signal 9"));
  }
  SECTION("nothing more is heard, as where a cable is cut between two nodes") {
    head.system.pass(500ms);
    REQUIRE(head.ended);
    CHECK(says(head.ended->message,
               "node 1 (host, pid 101): node 3 (host, pid 103) is lost: the "
               "connection to it broke; nothing is saved: no step was finished\n  fix: look at the "
               "network"));
  }
  SECTION("both ends of the way are known, and the job cannot do without them") {
    head.tell(lost_atom::value, NodeId{1}, NodeId{3}, EpochNumber{1}, std::string("reset"));
    head.system.pass(700ms);
    REQUIRE(head.ended);
    CHECK(says(head.ended->message,
               "node 1 (host, pid 101) lost its connection to node 3 (host, "
               "pid 103), and both answer the head; going on without one of "
               "them was tried: "));
    CHECK(says(head.ended->message, "no other node has"));
    CHECK(says(head.ended->message, "fix: look at the network between these machines"));
    CHECK_FALSE(says(head.ended->message, "peer"));
  }
}

TEST_CASE("the first reason why a job ends stands", "[actors][errors]") {
  Head head;
  head.start_training();
  head.tell(failed_atom::value, NodeId{1}, Error{Errc::io_failed, "no room left", "disk", ""});
  head.tell(failed_atom::value, NodeId{2}, Error{Errc::internal, "peer is gone", "", ""});
  REQUIRE(head.ended);
  CHECK(head.ended->message ==
        "node 1 (host, pid 101), disk: no room left; nothing is saved: no step was finished");
}

TEST_CASE("too many bad samples end the job before their batch is trained", "[actors][errors]") {
  Head head;
  head.resources.setup.job.data.max_bad_fraction = 0.01;  // Of 60 records: none.
  head.start_training();
  engine::PlannedBatch batch;
  batch.iteration.epoch_number = 1;
  batch.dropped.push_back({0, {"s0", data::BadKind::missing_file, "x.png", "", "gone", ""}});
  head.tell(std::make_shared<const engine::PlannedBatch>(batch));
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 3);
  CHECK(says(head.ended->message, "data.max_bad_fraction"));
}

TEST_CASE("a signal ends the job once all nodes have gone and all is written", "[actors]") {
  Head head;
  head.recorder.slow = true;
  head.start_training();
  head.plan(0);
  head.tell(stop_atom::value, std::int32_t{SIGINT});
  CHECK(says(head.seen[0].stops.at(0), "stopped by Ctrl-C during step 1"));
  head.system.pass(500ms);
  CHECK_FALSE(head.ended);  // The recorder still writes.
  caf::anon_send(head.actors.recorder, begin_atom::value, Configuration{});
  head.system.run();
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 130);
}

TEST_CASE("nodes that still open their data hear why the job ends, and are waited for",
          "[actors][errors]") {
  Head head;
  for (const char* host : {"here", "there", "far"}) head.join(host);
  head.ready(0);
  head.seen[2].deaf = true;
  head.tell(failed_atom::value, NodeId{0}, Error{Errc::io_failed, "no room left", "disk", ""});
  const std::string why = "node 0 (here, pid 100), disk: no room left";
  for (const std::size_t id : {0u, 1u, 2u})
    CHECK((head.seen[id].stops == std::vector<std::string>{why}));
  CHECK_FALSE(head.ended);
  // Who asks now hears it too.
  CHECK(head.join("late") == "the job ends: " + why);
  CHECK(says(head.refusal.fix, "start the job again"));
  caf::anon_send_exit(head.nodes[2], caf::exit_reason::user_shutdown);
  head.system.run();
  REQUIRE(head.ended);
  CHECK(head.ended->message == why);
  CHECK((head.ended->left == std::vector{NodeId{3}}));
}

TEST_CASE("a second signal, or cluster.stop_timeout_s, end the job without the others",
          "[actors]") {
  Head head;
  head.resources.setup.job.cluster.stop_timeout_s = 7;
  head.recorder.slow = true;
  head.start_training();
  head.tell(stop_atom::value, std::int32_t{SIGTERM});
  SECTION("a second signal") { head.tell(stop_atom::value, std::int32_t{SIGTERM}); }
  SECTION("time") {
    head.system.pass(6800ms);
    CHECK_FALSE(head.ended);
    head.system.pass(500ms);
  }
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 143);
}

TEST_CASE("a node that a signal ended is reported so", "[actors][errors]") {
  Head head(2, one_pipeline);
  head.start_training();
  head.tell(failed_atom::value, NodeId{2},
            Error{Errc::cancelled, "stopped by SIGTERM", "", "start it again"});
  head.pass(600ms, {0, 1, 2, 3});  // Others may have been told so too.
  head.leave({0, 1, 2, 3});
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, "stopped by SIGTERM at node 2 (host, pid 102)"));
  CHECK(head.seen[2].stops.size() == 1);  // It leaves when it hears this.
  CHECK(head.ended->left.empty());
}

// Window: planning
TEST_CASE("a batch for which the layout before had no plan is planned anew",
          "[actors][recovery][errors]") {
  SavingHead saving;
  Head& head = saving.head;
  saving.run_step(1);
  head.lose(3);
  REQUIRE(head.seen[0].configurations.size() == 2);
  const auto fail_to_plan = [&head](EpochNumber epoch) {
    head.tell(next_atom::value, epoch,
              Error{Errc::infeasible, "the largest microbatch is above the cap", "", "raise it"});
  };
  fail_to_plan(1);
  CHECK_FALSE(head.ended);
  for (const std::size_t id : {0u, 1u, 2u})
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  const int asked = head.scheduler.asked;
  for (const std::size_t id : {0u, 1u, 2u})
    head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  CHECK(head.scheduler.asked == asked + 1);
  fail_to_plan(1);  // It was on its way while the next layout came up.
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].saves.empty());
  fail_to_plan(2);  // Of this layout that counts.
  CHECK(head.seen[0].saves.size() == 1);
}

// Window: planning
TEST_CASE("a batch without a plan for a layout that has lost a node is planned anew",
          "[actors][recovery][errors]") {
  SavingHead saving;
  Head& head = saving.head;
  head.plan(0);
  saving.prepare(1);
  head.lose(3);  // The others finish the step first.
  REQUIRE(head.seen[0].configurations.size() == 1);
  head.tell(next_atom::value, EpochNumber{1},
            Error{Errc::infeasible, "the largest microbatch is above the cap", "", "raise it"});
  for (std::size_t device = 0; device < 3; ++device) head.finished(device, 1);
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].configurations.size() == 2);
  for (const std::size_t id : {0u, 1u, 2u})
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  const int asked = head.scheduler.asked;
  for (const std::size_t id : {0u, 1u, 2u})
    head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  CHECK(head.scheduler.asked == asked + 1);
  CHECK(head.seen[0].saves.empty());
}

}  // namespace
}  // namespace troupe::actors
