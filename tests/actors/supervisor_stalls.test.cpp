#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_stalls.hpp"

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/plugins/user_calls.hpp"
#include "tests/actors/on_each_node.hpp"
#include "tests/actors/saving_head.hpp"
#include "tests/runtime/data/temp_folder.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

constexpr const char* kWork =
    "the work does not return, in step 1 on device 1, forward of stage 1 (llm layers 0 to 3) for "
    "samples 's1' of microbatch 3";

/// All of the model on each node; a step may take 20 s.
void for_20_s(job::Job& job) {
  on_each_node(job);
  job.train.stall_timeout_s = 20;
}

/// A head whose nodes run the first step.
class StallingHead {
 public:
  explicit StallingHead(const std::function<void(job::Job&)>& edit = for_20_s) : head(9, edit) {
    head.start_training();
    head.plan(0);
  }

  std::size_t device_of(std::size_t node) const {
    const auto& devices = head.seen[node].configurations.back().plan.devices;
    const auto own = std::find_if(devices.begin(), devices.end(), [node](const DeviceSlot& slot) {
      return slot.node == NodeId{node};
    });
    REQUIRE(own != devices.end());
    return static_cast<std::size_t>(own - devices.begin());
  }

  /// A node says that its device has been at work of this step for so long.
  void tell_of_work(std::size_t node, double seconds, EpochNumber epoch = 1,
                    std::int64_t step = 1) {
    engine::FailedWork work{step, epoch};
    work.samples = {"s1"};
    work.thrown = "the work does not return";
    work.error = {Errc::timed_out, kWork, {}, "look there"};
    engine::LongWorks told;
    told.works.push_back({DeviceId{device_of(node)}, seconds, work});
    head.tell(NodeId{node}, told);
  }

  /// Who is left takes up the next layout, and begins the step again.
  void begin_again(EpochNumber epoch, const std::vector<std::size_t>& nodes) {
    for (const std::size_t id : nodes) head.tell(fetched_atom::value, NodeId{id}, epoch, 0.0);
    for (const std::size_t id : nodes) head.tell(applied_atom::value, NodeId{id}, epoch);
    head.plan(0);
  }

  void finish_step(EpochNumber epoch, std::size_t devices) {
    for (std::size_t device = 0; device < devices; ++device) head.prepared(device, 1, 1, 1, epoch);
    for (std::size_t device = 0; device < devices; ++device) head.finished(device, 1, epoch);
  }

  Head head;
};

TEST_CASE("a stage that never returns costs its node, once", "[actors][recovery][errors]") {
  StallingHead stalling;
  Head& head = stalling.head;
  for (const std::size_t node : {0u, 2u, 3u}) head.prepared(stalling.device_of(node), 1, 1, 1);
  stalling.tell_of_work(1, 6);
  head.system.pass(19s);
  CHECK(head.seen[1].stops.empty());
  head.system.pass(2s);
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[1].stops.size() == 1);
  INFO(head.seen[1].stops[0]);
  CHECK(says(
      head.seen[1].stops[0],
      std::string("goes on without this node: node 1 (host, pid 101) was lost: ") + kWork + " (2"));
  CHECK(says(head.seen[1].stops[0], " s so far)"));
  for (const std::size_t node : {0u, 2u, 3u}) CHECK(head.seen[node].stops.empty());
  stalling.begin_again(2, {0, 2, 3});
  SECTION("the step goes on with the others") {
    stalling.finish_step(2, 3);
    CHECK(head.recorder.steps.size() == 1);
    REQUIRE(head.recorder.events.size() == 1);
    CHECK(head.recorder.events[0].kind == "lost");
    CHECK(says(head.recorder.events[0].why, kWork));
  }
  SECTION("again: no other node would do better") {
    stalling.tell_of_work(2, 6, 2);
    head.system.pass(21s);
    head.leave({0, 2, 3});
    REQUIRE(head.ended);
    CHECK(head.ended->exit_code == 1);
    INFO(head.ended->message);
    CHECK(
        says(head.ended->message,
             std::string("step 1 fails again where it is trained again: node 2 (host, pid 102): ") +
                 kWork));
    CHECK(
        says(head.ended->message, "before that node 1 (host, pid 101): the work does not return"));
    CHECK(says(head.ended->message, "fix: correct what throws there, or never returns"));
  }
}

TEST_CASE("nodes whose stages never return are lost at once", "[actors][recovery]") {
  StallingHead stalling;
  Head& head = stalling.head;
  for (const std::size_t node : {1u, 2u}) stalling.tell_of_work(node, 6);
  head.system.pass(21s);
  CHECK_FALSE(head.ended);
  for (const std::size_t node : {1u, 2u}) CHECK(head.seen[node].stops.size() == 1);
  stalling.begin_again(head.seen[0].configurations.back().epoch_number, {0, 3});
  stalling.finish_step(head.seen[0].configurations.back().epoch_number, 2);
  CHECK(head.recorder.steps.size() == 1);
}

// Window: a decided step does not end
TEST_CASE("a decided step that some never finish is saved by the others, and the job ends",
          "[actors][recovery][errors]") {
  SavingHead saving(
      9, [](job::Checkpointing&) {}, for_20_s);
  Head& head = saving.head;
  head.plan(0);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 1, 1, 1);
  for (const std::size_t device : {0u, 3u}) head.finished(device, 1);
  head.system.pass(21s);
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == 1);
  CHECK(head.recorder.steps.size() == 1);
  for (const std::size_t node : {1u, 2u}) {
    CHECK(head.seen[node].saves.empty());
    REQUIRE(head.seen[node].stops.size() == 1);
    CHECK(says(head.seen[node].stops[0], " has not finished step 1"));
  }
  saving.write({1, 2});
  saving.keep();
  head.leave({0, 3});
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == 75);
  CHECK(says(head.ended->message, "step 1 has not ended for 20 s; it waits for the end of device"));
  CHECK(says(head.ended->message, "fix: step 1 is saved: the same command goes on from there ("));
}

TEST_CASE("who was in its work for a moment, or has returned, is not to blame for a step",
          "[actors][errors]") {
  StallingHead stalling;
  Head& head = stalling.head;
  SECTION("a moment") {
    head.system.pass(19s);
    stalling.tell_of_work(1, 5);
    head.system.pass(2s);
  }
  SECTION("it has returned") {
    stalling.tell_of_work(1, 6);
    head.tell(NodeId{1}, engine::LongWorks{});
    head.system.pass(21s);
  }
  SECTION("it is done with the step") {
    stalling.tell_of_work(1, 6);
    head.prepared(stalling.device_of(1), 1, 1, 1);
    head.system.pass(21s);
  }
  SECTION("it was in a layout before") {
    stalling.tell_of_work(1, 6, 0);
    head.system.pass(21s);
  }
  head.leave({0, 1, 2, 3});
  REQUIRE(head.ended);
  CHECK(
      says(head.ended->message, "train.stall_timeout_s: step 1 has not ended for 20 s; it waits"));
}

TEST_CASE("a stage that never returns ends a job that cannot do without its node",
          "[actors][errors]") {
  StallingHead stalling([](job::Job& job) {
    one_pipeline(job);
    job.train.stall_timeout_s = 20;
  });
  stalling.tell_of_work(1, 6);
  stalling.head.system.pass(21s);
  stalling.head.leave({0, 1, 2, 3});
  REQUIRE(stalling.head.ended);
  CHECK(stalling.head.ended->exit_code == 1);
  CHECK(
      says(stalling.head.ended->message, std::string("node 1 (host, pid 101): ") + kWork + " (2"));
  CHECK(says(stalling.head.ended->message,
             " s so far); nothing is saved: no step was finished\n  fix: look there"));
}

TEST_CASE("word of a step that takes very long names the work that does not return", "[actors]") {
  const data::TempFolder folder;
  const auto file = folder.path() / "log";
  StallingHead stalling;
  Head& head = stalling.head;
  head.resources.setup.job.train.stall_timeout_s = 1000;
  head.resources.logger =
      observe::Logger::create(nullptr, {"head", observe::LogLevel::info, file}).value();
  stalling.tell_of_work(1, 10);
  head.system.pass(31s);
  std::ifstream stream(file);
  const std::string log(std::istreambuf_iterator<char>(stream), {});
  INFO(log);
  CHECK(says(log, "step 1 has not ended for 30 s; it waits for the gradients of"));
  CHECK(says(log,
             std::string("All nodes answer: node 1 (host, pid 101): ") + kWork + " (40 s so far)"));
}

TEST_CASE("a function that plans and does not return is told, and no node blamed for it",
          "[actors][errors]") {
  const data::TempFolder folder;
  const auto file = folder.path() / "log";
  Head head(9, for_20_s);
  head.resources.logger =
      observe::Logger::create(nullptr, {"head", observe::LogLevel::info, file}).value();
  head.start_training();
  {
    const plugins::CallingUser call("`plan` of policy 'mine'");
    head.system.pass(31s);
    CHECK_FALSE(head.ended);  // Who watches the call ends the job, and says for how long it lasts.
    CHECK(head.seen[1].stops.empty());
    std::ifstream stream(file);
    const std::string log(std::istreambuf_iterator<char>(stream), {});
    INFO(log);
    CHECK(says(log, "the next one waits for `plan` of policy 'mine', which has not returned"));
  }
  head.system.pass(1s);
  head.leave({0, 1, 2, 3});
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "no step has run for 3"));
  CHECK(says(head.ended->message, "waits for its samples and its plan"));
}

TEST_CASE("a function that plans ahead is not what a step waits for", "[actors][errors]") {
  StallingHead stalling;
  const plugins::CallingUser call("`plan` of policy 'mine'");
  stalling.head.system.pass(21s);
  stalling.head.leave({0, 1, 2, 3});
  REQUIRE(stalling.head.ended);
  CHECK(says(stalling.head.ended->message, "step 1 has not ended for 20 s; it waits"));
}

// Window: a layout does not come up
TEST_CASE("a node whose stage does not return takes up no other layout, and is lost",
          "[actors][recovery][errors]") {
  StallingHead stalling;
  Head& head = stalling.head;
  stalling.tell_of_work(1, 6);
  stalling.tell_of_work(2, 1);
  head.tell(NodeId{2}, engine::LongWorks{});
  head.leave({3});
  head.system.pass(1900ms);  // The next layout comes up.
  CHECK(head.seen[1].stops.empty());
  head.system.pass(400ms);
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[1].stops.size() == 1);
  INFO(head.seen[1].stops[0]);
  CHECK(says(head.seen[1].stops[0],
             std::string("goes on without this node: node 1 (host, pid 101) was lost: it did not "
                         "fetch its state of layout 2 within 2 s (cluster.join_timeout_s); ") +
                 kWork));
  for (const std::size_t node : {0u, 2u}) CHECK(head.seen[node].stops.empty());  // They waited.
  stalling.begin_again(3, {0, 2});
  stalling.finish_step(3, 2);
  CHECK(head.recorder.steps.size() == 1);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{3}, NodeId{1}}));
}

// Window: a layout does not come up
TEST_CASE("a node that is late with a layout alone is lost, once until one is up",
          "[actors][recovery][errors]") {
  StallingHead stalling;
  Head& head = stalling.head;
  head.leave({3});
  const bool has_fetched = GENERATE(false, true);
  for (const std::size_t node : {0u, 1u, 2u})
    if (node != 1 || has_fetched) head.tell(fetched_atom::value, NodeId{node}, EpochNumber{2}, 0.0);
  if (has_fetched)
    for (const std::size_t node : {0u, 2u})
      head.tell(applied_atom::value, NodeId{node}, EpochNumber{2});
  head.system.pass(2300ms);
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[1].stops.size() == 1);
  CHECK(says(head.seen[1].stops[0], has_fetched ? "it did not turn over to layout 2 within 2 s"
                                                : "it did not fetch its state of layout 2 within"));
  const bool is_late_again = GENERATE(false, true);
  if (is_late_again) {
    head.tell(fetched_atom::value, NodeId{0}, EpochNumber{3}, 0.0);
    head.system.pass(2400ms);
    head.leave({0, 2});
    REQUIRE(head.ended);
    CHECK(says(head.ended->message,
               "the model was not set up within 2 s; still at it: node 2 (host, pid 102)"));
    return;
  }
  stalling.begin_again(3, {0, 2});
  stalling.finish_step(3, 2);
  CHECK(head.recorder.steps.size() == 1);
}

// Window: a layout does not come up
TEST_CASE("nodes that are late with a layout, and none of them stuck, end the job by name",
          "[actors][errors]") {
  StallingHead stalling;
  Head& head = stalling.head;
  head.leave({3});
  head.tell(fetched_atom::value, NodeId{0}, EpochNumber{2}, 0.0);
  SECTION("one has only just turned to its work") {
    head.system.pass(1500ms);
    stalling.tell_of_work(1, 0.1);
  }
  SECTION("all are in their work") {
    for (const std::size_t node : {0u, 1u, 2u}) stalling.tell_of_work(node, 6);
    head.leave({0});  // Who had fetched its state.
  }
  head.system.pass(2300ms);
  head.leave({0, 1, 2});
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(says(head.ended->message,
             "not set up within 2 s; still at it: node 1 (host, pid 101), node 2 (host, pid 102)"));
  REQUIRE(head.seen[1].stops.size() == 1);
  CHECK_FALSE(says(head.seen[1].stops[0], "goes on without this node"));
  CHECK(says(head.ended->message, std::string("; ") + kWork));
}

TEST_CASE("groups of calls that do not open by no node's own fault end the job at once",
          "[actors][errors]") {
  StallingHead stalling;
  Head& head = stalling.head;
  head.leave({3});
  for (const std::size_t node : {0u, 1u, 2u})
    head.tell(fetched_atom::value, NodeId{node}, EpochNumber{2}, 0.0);
  head.tell(failed_atom::value, NodeId{1}, EpochNumber{2},
            Error{Errc::transport_failed, "NCCL group 'rows' cannot be opened: no route", {}, {}});
  head.pass(700ms, {0, 1, 2});
  head.leave({0, 1, 2});
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(says(head.ended->message, "(host, pid 101): NCCL group 'rows' cannot be opened: no route"));
  CHECK(says(head.ended->message, "look at the network between these machines"));
}

TEST_CASE("a node that is late with a layout ends a job that cannot do without it",
          "[actors][errors]") {
  Head head(9, one_pipeline);
  head.join_all();
  for (const std::size_t node : {0u, 2u, 3u})
    head.tell(fetched_atom::value, NodeId{node}, EpochNumber{1}, 0.0);
  head.system.pass(2300ms);
  head.leave({0, 1, 2, 3});
  REQUIRE(head.ended);
  CHECK(
      says(head.ended->message,
           "not set up within 2 s; still at it: node 1 (host, pid 101); nothing is saved: no step "
           "was finished\n"));
}

TEST_CASE("of a node that falls silent it is said what it was in", "[actors][errors]") {
  StallingHead stalling(one_pipeline);
  Head& head = stalling.head;
  head.resources.setup.job.cluster.heartbeat_timeout_s = 3;
  head.pass(1s, {0, 1, 2, 3});
  stalling.tell_of_work(2, 10);
  head.pass(4s, {0, 1, 3});
  REQUIRE(head.ended);
  CHECK(says(head.ended->message,
             std::string("node 2 (host, pid 102) was lost: nothing was heard from it for 3 s "
                         "(cluster.heartbeat_timeout_s); ") +
                 kWork));
}

}  // namespace
}  // namespace troupe::actors
