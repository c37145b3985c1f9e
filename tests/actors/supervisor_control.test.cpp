// What the owner of a running job hears and orders (`troupe ctl`).

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_control.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <string>

#include "runtime/observe/job_status.hpp"
#include "tests/actors/members_fixture.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

TEST_CASE("the job's owner is answered", "[actors][members]") {
  Members members;
  Head& head = members.head;
  using Kind = ControlRequest::Kind;
  head.plan(0);
  members.run_step(1, 1);
  auto status = observe::read_status(members.ask(Kind::status)).value();
  CHECK(status.phase == "training");
  CHECK(status.step == 1);
  CHECK(status.total_steps == 9);
  CHECK(status.generation == 1);
  CHECK(status.tolerance_left == 1);
  CHECK(status.loss > 0);
  CHECK(status.layout == "2 pipelines of 2 and 3 stages");
  REQUIRE(status.nodes.size() == 4);
  CHECK(status.nodes[2].state == "working");
  CHECK(status.nodes[2].pid == 102);
  CHECK(says(observe::status_text(status), "training, step 1 of 9 done"));
  CHECK(says(members.ask(Kind::drain, 7), "no: there is no node 7"));
  CHECK(says(members.ask(Kind::checkpoint), "being saved"));
  CHECK(head.seen[0].saves.size() == 1);
  CHECK(says(members.ask(Kind::stop), "saves and ends"));
  CHECK(observe::read_status(members.ask(Kind::status)).value().phase == "stopping");
  CHECK(says(members.ask(Kind::drain, 1), "no: the job ends"));
  CHECK(says(head.join("late"), "the job ends: stopped by troupe ctl"));
}

TEST_CASE("the job's owner hears what comes of an order before the first step is done",
          "[actors][members]") {
  Head head(9);
  head.join("host0");
  using Kind = ControlRequest::Kind;
  CHECK(says(head.ask({Kind::checkpoint, NodeId{-1}}), "saved once a step is finished"));
  for (const char* host : {"host1", "host2", "host3"}) head.join(host);
  for (std::size_t id = 0; id < 4; ++id) head.ready(id);
  head.bring_up(1);
  CHECK(head.seen[0].saves.empty());
  const bool is_stopped = GENERATE(false, true);
  if (is_stopped) {
    CHECK(says(head.ask({Kind::stop, NodeId{-1}}), "the job ends: no step is finished"));
    head.leave({0, 1, 2, 3});
    REQUIRE(head.ended);
    CHECK(says(head.ended->message, "there is no checkpoint to resume from"));
    return;
  }
  head.plan(0);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 1, 1, 1);
  for (std::size_t device = 0; device < 4; ++device) head.finished(device, 1);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(head.seen[0].saves[0].step == 1);
}

TEST_CASE("the job's owner hears who comes, who goes and who is silent", "[actors][members]") {
  using Kind = ControlRequest::Kind;
  Members leaving;
  leaving.head.plan(0);
  leaving.ask(Kind::drain, 3);
  CHECK(observe::read_status(leaving.ask(Kind::status)).value().nodes[3].state == "draining");

  Members members;
  Head& head = members.head;
  members.begin_to_replace_one();
  head.pass(1400ms, {0, 1, 2});  // Twice cluster.heartbeat_interval_s is 1 s.
  const auto status = observe::read_status(members.ask(Kind::status)).value();
  CHECK(status.nodes[1].state == "joining");
  CHECK(status.nodes[0].silent_s == 0);
  CHECK(status.nodes[3].silent_s > 1.3);
  CHECK(says(observe::status_text(status), "node 3  working, silent for 1 s"));
}

TEST_CASE("the job's owner hears what the job promises, and where nodes join",
          "[actors][members]") {
  Members members([](job::Job& job) {
    job.cluster.fault_tolerance = 1;
    job.cluster.min_nodes = 3;
  });
  members.head.resources.door = "head:7000";
  const auto status = observe::read_status(members.ask(ControlRequest::Kind::status)).value();
  CHECK(status.fault_tolerance == 1);
  CHECK(status.min_nodes == 3);
  CHECK(status.spares == 0);
  CHECK(status.join == "head:7000");
}

TEST_CASE("an answer that makes no sense is an error", "[actors][errors]") {
  CHECK(observe::read_status("{}").error().code == Errc::bad_data);
  CHECK(observe::read_status("nothing").error().code == Errc::bad_data);
}

}  // namespace
}  // namespace troupe::actors
