#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_end.hpp"

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/actors/head_fixture.hpp"
#include "tests/actors/on_each_node.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// A head whose nodes run the first step.
class FailingHead {
 public:
  explicit FailingHead(const std::function<void(job::Job&)>& layout = on_each_node)
      : head(9, layout) {
    head.start_training();
    head.plan(0);
  }

  void lose(std::size_t node, std::int32_t signal) {
    head.tell(exited_atom::value, static_cast<std::int32_t>(100 + node),
              "was killed by signal " + std::to_string(signal), signal);
  }

  /// Its connection may be lost before it is reaped.
  void crash(std::size_t node, bool is_known_late) {
    if (is_known_late) head.leave({node});
    lose(node, SIGSEGV);
  }

  /// A stage of this node throws in the step that runs.
  void throw_at(std::size_t node, EpochNumber epoch, std::int64_t step = 1) {
    engine::FailedWork failed{step, epoch};
    failed.samples = {"s1"};
    failed.thrown = "too tired";
    failed.error = {Errc::internal, "too tired, in step 1 for samples 's1'", {}, "let it sleep"};
    head.tell(NodeId{node}, failed);
  }

  /// Who is left takes up the next layout, and begins the step again.
  void begin_again(EpochNumber epoch, const std::vector<std::size_t>& nodes,
                   std::int64_t batch = 0) {
    for (const std::size_t id : nodes) head.tell(fetched_atom::value, NodeId{id}, epoch, 0.0);
    for (const std::size_t id : nodes) head.tell(applied_atom::value, NodeId{id}, epoch);
    head.plan(batch);
  }

  std::size_t device_of(std::size_t node) const {
    const auto& devices = head.seen[node].configurations.back().plan.devices;
    const auto own = std::find_if(devices.begin(), devices.end(), [node](const DeviceSlot& slot) {
      return slot.node == NodeId{node};
    });
    REQUIRE(own != devices.end());
    return static_cast<std::size_t>(own - devices.begin());
  }

  /// Samples that a node computes in the step that it was given last.
  std::set<std::string> samples_at(std::size_t node) const {
    const IterationPlan& step = head.seen[node].plans.back();
    const ParallelPlan& layout = head.seen[node].configurations.back().plan;
    std::set<std::string> ids;
    for (const Action& action : step.actions[device_of(node)])
      if (action.kind == ActionKind::forward)
        for (const std::int32_t unit :
             samples_of(layout, step, action.stage, action.microbatch, action.part))
          ids.insert(step.sample(unit).id);
    REQUIRE_FALSE(ids.empty());
    return ids;
  }

  /// Which of these nodes computes one of the samples now.
  std::size_t heir_of(const std::set<std::string>& samples,
                      const std::vector<std::size_t>& nodes) const {
    for (const std::size_t node : nodes)
      for (const std::string& id : samples_at(node))
        if (samples.contains(id)) return node;
    FAIL("nobody has them");
    return 0;
  }

  Head head;
};

// Window: a stage throws
TEST_CASE("a node whose stage throws is lost, and told so", "[actors][recovery][errors]") {
  FailingHead failing;
  Head& head = failing.head;
  failing.throw_at(1, 1);
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[1].stops.size() == 1);
  CHECK(says(head.seen[1].stops[0],
             "goes on without this node: node 1 (host, pid 101) was lost: "
             "too tired, in step 1 for samples 's1'"));
  // Another one that threw beside it belongs to the layout before.
  failing.throw_at(2, 1);
  CHECK_FALSE(head.ended);
  failing.begin_again(2, {0, 2, 3});
  SECTION("once: the step goes on with the others") {
    for (std::size_t device = 0; device < 3; ++device) head.prepared(device, 1, 1, 1, 2);
    for (std::size_t device = 0; device < 3; ++device) head.finished(device, 1, 2);
    REQUIRE(head.recorder.events.size() == 1);
    CHECK(head.recorder.events[0].kind == "lost");
    CHECK(says(head.recorder.events[0].why, "too tired, in step 1 for samples 's1'"));
    CHECK(head.recorder.steps.size() == 1);
  }
  SECTION("again: no other node would do better") {
    failing.throw_at(2, 2);
    head.leave({0, 2, 3});
    REQUIRE(head.ended);
    CHECK(head.ended->exit_code == 1);
    CHECK(says(head.ended->message,
               "step 1 fails again where it is trained again: node 2 (host, "
               "pid 102): too tired, in step 1 for samples 's1'"));
    CHECK(says(head.ended->message, "before that node 1 (host, pid 101): too tired"));
    CHECK(says(head.ended->message, "fix: correct what throws there"));
  }
}

TEST_CASE("devices that fail cost their nodes, and the step goes on elsewhere",
          "[actors][recovery][errors]") {
  FailingHead failing;
  Head& head = failing.head;
  const auto fail_device = [&](std::size_t node, EpochNumber epoch) {
    engine::FailedWork failed{1, epoch};
    failed.error = {Errc::internal, "CUDA error: uncorrectable ECC error, in step 1", {}, "look"};
    failed.by_device = true;
    head.tell(NodeId{node}, failed);
  };
  const std::set<std::string> samples = failing.samples_at(1);
  fail_device(1, 1);
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[1].stops.size() == 1);
  CHECK(says(head.seen[1].stops[0], "was lost: CUDA error: uncorrectable ECC error, in step 1"));
  failing.begin_again(2, {0, 2, 3});
  // An exception would be a repetition; a second broken device is none, even with the same samples.
  const std::size_t heir = failing.heir_of(samples, {0, 2, 3});
  std::set<std::string> both;
  for (const std::string& id : failing.samples_at(heir))
    if (samples.contains(id)) both.insert(id);
  fail_device(heir, 2);
  CHECK_FALSE(head.ended);
  std::vector<std::size_t> left{0, 2, 3};
  std::erase(left, heir);
  failing.begin_again(3, left);
  // The third one in a row with a sample of theirs: it is what they compute, or no chance.
  const std::size_t last = failing.heir_of(both, left);
  fail_device(last, 3);
  head.leave(left);
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "nodes were lost one after the other, each while it ran step 1"));
}

TEST_CASE("a device that does not get into its groups of calls costs its node, and blames no step",
          "[actors][recovery][errors]") {
  FailingHead failing;
  Head& head = failing.head;
  failing.throw_at(1, 1);
  REQUIRE(head.seen[1].stops.size() == 1);
  for (const std::size_t id : {0u, 2u, 3u})
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  head.tell(applied_atom::value, NodeId{0}, EpochNumber{2});
  engine::FailedWork failed{0, 2};
  failed.error = {Errc::timed_out, "NCCL group 'rows' cannot be opened", {}, {}};
  failed.by_device = true;
  head.tell(NodeId{2}, failed);
  // What its other ends say belongs to the layout before.
  head.tell(failed_atom::value, NodeId{3}, EpochNumber{2},
            Error{Errc::transport_failed, "NCCL group 'rows' cannot be opened", {}, {}});
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[2].stops.size() == 1);
  CHECK(says(head.seen[2].stops[0], "was lost: NCCL group 'rows' cannot be opened"));
  failing.begin_again(3, {0, 3});
  engine::FailedWork again{1, 3};  // Other words, of other samples.
  again.thrown = "too cold";
  again.error = {Errc::internal, "too cold, in step 1", {}, {}};
  head.tell(NodeId{3}, again);
  head.leave({0, 3});
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "step 1 fails again where it is trained again: node 3 "));
}

// Window: a layout does not come up
TEST_CASE("groups of calls that do not open on other nodes either end the job",
          "[actors][recovery][errors]") {
  FailingHead failing;
  Head& head = failing.head;
  const auto fail_opening = [&](std::size_t node, EpochNumber epoch,
                                const std::vector<std::size_t>& nodes) {
    for (const std::size_t id : nodes) head.tell(fetched_atom::value, NodeId{id}, epoch, 0.0);
    engine::FailedWork failed{0, epoch};
    failed.error = {Errc::timed_out, "NCCL group 'rows' cannot be opened", {}, {}};
    failed.by_device = true;
    head.tell(NodeId{node}, failed);
  };
  head.leave({1});  // A layout comes up.
  fail_opening(2, 2, {0, 2, 3});
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[2].stops.size() == 1);
  fail_opening(3, 3, {0, 3});
  head.leave({0, 3});
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.seen[0].configurations.back().epoch_number == 3);  // It is not tried without node 3.
  CHECK(says(head.ended->message,
             "node 3 (host, pid 103): NCCL group 'rows' cannot be opened; "
             "before that node 1 (host, pid 101) was lost"));
  CHECK(says(head.ended->message, "node 2 (host, pid 102) was lost: NCCL group 'rows' cannot be"));
  CHECK(says(head.ended->message, "cluster.sums and cluster.rows"));
}

TEST_CASE("a device whose calls fail is done without where no other node is lost",
          "[actors][recovery][errors]") {
  FailingHead failing;
  Head& head = failing.head;
  engine::FailedWork failed{1, 1};
  failed.error = {Errc::transport_failed, "NCCL group 'rows': it failed on its way", {}, {}};
  failed.by_device = true;
  head.tell(NodeId{1}, failed);
  CHECK(head.seen[1].stops.empty());  // Another node may be the reason.
  SECTION("it alone has a reason") {
    head.pass(1200ms, {0, 1, 2, 3});
    REQUIRE(head.seen[1].stops.size() == 1);
    CHECK(says(head.seen[1].stops[0], "was lost: NCCL group 'rows': it failed on its way"));
  }
  SECTION("the other end is lost") {
    failing.lose(2, SIGKILL);
    head.pass(1200ms, {0, 1, 3});
    CHECK(head.seen[1].stops.empty());
  }
  SECTION("the other end is lost, and the others take long for a step that is decided") {
    for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 1, 1, 1);
    failing.lose(2, SIGKILL);
    head.pass(1200ms, {0, 1, 3});
    CHECK(head.seen[1].stops.empty());
    CHECK(head.seen[1].configurations.size() == 1);  // It is not finished yet.
  }
  CHECK_FALSE(head.ended);
}

TEST_CASE("what a stage throws ends a job that cannot do without its node",
          "[actors][recovery][errors]") {
  FailingHead failing(one_pipeline);
  failing.throw_at(1, 1);
  failing.head.leave({0, 1, 2, 3});
  REQUIRE(failing.head.ended);
  CHECK(failing.head.ended->exit_code == 1);
  CHECK(says(failing.head.ended->message,
             "node 1 (host, pid 101): too tired, in step 1 for samples 's1'; nothing is saved: no "
             "step was finished\n  fix: let it sleep"));
}

TEST_CASE("an error that is no exception ends the job at once", "[actors][errors]") {
  FailingHead failing;
  failing.head.tell(failed_atom::value, NodeId{1}, EpochNumber{1},
                    Error{Errc::internal, "not finite", "", ""});
  failing.head.leave({0, 1, 2, 3});
  REQUIRE(failing.head.ended);
  CHECK(says(failing.head.ended->message, "node 1 (host, pid 101): not finite"));
}

TEST_CASE("a step that ends one process after the other ends the job",
          "[actors][recovery][errors]") {
  FailingHead failing;
  Head& head = failing.head;
  const bool is_known_late = GENERATE(false, true);
  const auto crash = [&](std::size_t node) { failing.crash(node, is_known_late); };
  const std::set<std::string> samples = failing.samples_at(1);
  crash(1);
  CHECK_FALSE(head.ended);
  failing.begin_again(2, {0, 2, 3});
  const std::size_t heir = failing.heir_of(samples, {0, 2, 3});
  SECTION("while it is trained again") {
    crash(heir);
    head.leave({0, 2, 3});
    REQUIRE(head.ended);
    CHECK(head.ended->exit_code == 1);
    CHECK(says(head.ended->message, "node 1 (host, pid 101) and node "));
    CHECK(says(head.ended->message, ") both ended in step 1 for samples 's"));
    CHECK(says(head.ended->message, "was killed by signal 11, then was killed by signal 11"));
    REQUIRE(head.recorder.events.size() == 2);
    const auto& last = head.recorder.events[1];
    CHECK(last.kind == "lost");
    CHECK((last.nodes == std::vector<NodeId>{NodeId{heir}}));
    CHECK(says(last.why, ") was lost: "));
  }
  SECTION("not while it waits for the word on it") {
    head.prepared(failing.device_of(heir), 1, 1, 1, 2);
    crash(heir);
    CHECK_FALSE(head.ended);
  }
  SECTION("not once it was finished") {
    for (std::size_t device = 0; device < 3; ++device) head.prepared(device, 1, 1, 1, 2);
    for (std::size_t device = 0; device < 3; ++device) head.finished(device, 1, 2);
    head.plan(1);
    crash(heir);
    CHECK_FALSE(head.ended);
  }
}

// Window: what runs in a step ends its process
TEST_CASE("a step that ends one process after the other ends the job once the others have saved",
          "[actors][recovery][errors]") {
  FailingHead failing;
  Head& head = failing.head;
  head.run_step(1);
  head.plan(1);
  const bool is_known_late = GENERATE(false, true);
  const auto crash = [&](std::size_t node) { failing.crash(node, is_known_late); };
  const std::set<std::string> samples = failing.samples_at(1);
  crash(1);
  failing.begin_again(2, {0, 2, 3}, 1);
  const std::size_t heir = failing.heir_of(samples, {0, 2, 3});
  std::vector<std::size_t> left{0, 2, 3};
  std::erase(left, heir);
  crash(heir);
  CHECK_FALSE(head.ended);
  if (is_known_late) {  // State is on its way to where the layout without it wants it.
    CHECK(head.seen[left[0]].saves.empty());
    for (const std::size_t id : left)
      head.tell(fetched_atom::value, NodeId{id}, EpochNumber{3}, 0.0);
    for (const std::size_t id : left) head.tell(applied_atom::value, NodeId{id}, EpochNumber{3});
  }
  for (const std::size_t id : left) {
    REQUIRE(head.seen[id].saves.size() == 1);
    const SaveOrder& order = head.seen[id].saves[0];
    CHECK(order.step == 1);
    if (order.shards.empty()) continue;
    SaveReport report{order.number, {NodeId{id}, 0}, true};
    report.file = "state-" + std::to_string(id);
    head.tell(report);
  }
  REQUIRE(head.keeper.written.size() == 1);
  KeptCheckpoint kept;
  kept.number = head.keeper.written[0].number;
  head.tell(std::make_shared<const KeptCheckpoint>(kept));
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, ") both ended in step 2 for samples 's"));
  CHECK(says(head.ended->message,
             "; step 1 is saved: the same command with --resume goes on from there ("));
}

TEST_CASE("kills end a job only where each of three falls into the same step",
          "[actors][recovery]") {
  FailingHead failing;
  Head& head = failing.head;
  SECTION("two at once, another one while it is trained again, and then a third") {
    const std::set<std::string> samples = failing.samples_at(1);
    failing.lose(1, SIGKILL);
    failing.lose(2, SIGKILL);
    CHECK_FALSE(head.ended);
    failing.begin_again(3, {0, 3});
    const std::size_t heir = failing.heir_of(samples, {0, 3});
    const std::size_t last = 3 - heir;
    failing.lose(heir, SIGKILL);
    CHECK_FALSE(head.ended);
    failing.begin_again(4, {last});
    failing.lose(last, SIGKILL);  // All samples were its own.
    REQUIRE(head.ended);
    CHECK(says(head.ended->message,
               "nodes were lost one after the other, each while it ran step 1 "
               "for samples 's"));
  }
  SECTION("three, of which one falls between") {
    failing.lose(1, SIGKILL);
    failing.begin_again(2, {0, 2, 3});
    failing.lose(2, SIGKILL);
    failing.lose(3, SIGKILL);  // A layout comes up.
    CHECK_FALSE(head.ended);
  }
}

}  // namespace
}  // namespace troupe::actors
