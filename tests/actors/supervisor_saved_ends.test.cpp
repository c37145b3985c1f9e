// Jobs that end by an error: what their nodes have is saved first.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_last_save.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "tests/actors/saving_head.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

// Window: a peer is missed that the head reaches
TEST_CASE("nodes that do not reach each other, and cannot be done without, save what they have",
          "[actors][recovery]") {
  SavingHead saving(9, {}, one_pipeline);
  Head& head = saving.head;
  const bool has_trained = GENERATE(true, false);
  if (has_trained) saving.run_step(1);
  head.plan(has_trained ? 1 : 0);
  const auto miss = [&head](std::size_t reporter, std::size_t peer) {
    head.tell(lost_atom::value, NodeId{reporter}, NodeId{peer}, EpochNumber{1},
              std::string("reset"));
    head.pass(800ms, {0, 1, 2, 3});
  };
  miss(1, 3);
  CHECK(head.ended.has_value() != has_trained);
  if (has_trained) {
    REQUIRE(head.seen[0].saves.size() == 1);
    CHECK(saving.order().step == 1);  // The other step is not decided.
    miss(3, 1);
    CHECK_FALSE(head.ended);
    saving.write();
    saving.keep();
  }
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == (has_trained ? 75 : 1));
  CHECK(says(head.ended->message,
             "node 1 (host, pid 101) lost its connection to node 3 (host, "
             "pid 103), and both answer the head; going on without one of "
             "them was tried: no other node has "));
  CHECK(says(head.ended->message, "; what is known of the way: reset"));
  CHECK(says(head.ended->message, has_trained
                                      ? "fix: step 1 is saved: the same command goes on from there"
                                      : "fix: look at the network between these machines"));
}

/// A stage throws in step 2, in the first layout or the second.
engine::FailedWork thrown_in_step_2(EpochNumber epoch = 1) {
  engine::FailedWork failed{2, epoch};
  failed.samples = {"s1"};
  failed.thrown = "too tired";
  failed.error = {Errc::internal, "too tired, in step 2 for samples 's1'", {}, "let it sleep"};
  return failed;
}

TEST_CASE("what a stage throws ends a job with its code, once the others' work is saved",
          "[actors][errors]") {
  SavingHead saving(9, {}, one_pipeline);
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  engine::FailedWork failed = thrown_in_step_2();
  bool may_save = true;
  std::int32_t code = 1;  // Who begins it again has it throw again.
  SECTION("it throws") {}
  SECTION("it never returns, and its thread would hear of no order") {
    failed.error.code = Errc::timed_out;
    may_save = false;
    code = 75;
  }
  head.tell(NodeId{1}, failed);
  head.tell(NodeId{2}, thrown_in_step_2());  // The first reason stands.
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == 1);
  CHECK(head.seen[1].saves.empty() != may_save);
  if (may_save)
    saving.write();
  else
    saving.write({1});
  saving.keep();
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == code);
  CHECK(says(head.ended->message,
             "node 1 (host, pid 101): too tired, in step 2 for samples 's1'; " +
                 std::string(may_save ? "step 1 is saved: the same command with --resume goes on "
                                        "from there"
                                      : "what is left of step 1 is saved (")));
  CHECK(says(head.ended->message, "\n  fix: let it sleep"));
}

// Window: a stage throws
TEST_CASE("a step that fails again ends the job once what came before it is saved",
          "[actors][recovery][errors]") {
  SavingHead saving(9, {}, [](job::Job& job) {
    job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}, {"llm", {}}}}},
                                     {{1, 0, {{"vision", {}}, {"llm", {}}}}},
                                     {{2, 0, {{"vision", {}}, {"llm", {}}}}},
                                     {{3, 0, {{"vision", {}}, {"llm", {}}}}}};
  });
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  const bool hangs = GENERATE(false, true);  // Then the others alone save.
  const auto fail = [&](std::size_t node, EpochNumber epoch) {
    engine::FailedWork failed = thrown_in_step_2(epoch);
    if (hangs) failed.error.code = Errc::timed_out;
    head.tell(NodeId{node}, failed);
  };
  fail(1, 1);
  for (const std::size_t id : {0u, 2u, 3u})
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  for (const std::size_t id : {0u, 2u, 3u})
    head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  head.plan(1);
  fail(2, 2);
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == 1);
  CHECK(head.seen[2].saves.empty() == hangs);
  if (hangs)
    saving.write({1, 2});
  else
    saving.write({1});
  saving.keep();
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, "step 2 fails again where it is trained again: node 2"));
  CHECK(says(head.ended->message,
             "; step 1 is saved: the same command with --resume goes on from there"));
}

// Window: what runs in a step ends its process
TEST_CASE("a third device that fails in the same step is not asked to save",
          "[actors][recovery][errors]") {
  SavingHead saving(9, {}, [](job::Job& job) {
    job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}, {"llm", {}}}}},
                                     {{1, 0, {{"vision", {}}, {"llm", {}}}}},
                                     {{2, 0, {{"vision", {}}, {"llm", {}}}}},
                                     {{3, 0, {{"vision", {}}, {"llm", {}}}}}};
  });
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  for (std::size_t node = 1; node < 4; ++node) {
    CHECK(head.seen[0].saves.empty());
    engine::FailedWork failed = thrown_in_step_2(static_cast<EpochNumber>(node));
    failed.by_device = true;
    head.tell(NodeId{node}, failed);
    if (node == 3) break;
    const auto next = static_cast<EpochNumber>(node + 1);
    for (std::size_t id = 0; id < 4; ++id)
      if (id == 0 || id > node) head.tell(fetched_atom::value, NodeId{id}, next, 0.0);
    for (std::size_t id = 0; id < 4; ++id)
      if (id == 0 || id > node) head.tell(applied_atom::value, NodeId{id}, next);
    head.plan(1);
  }
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == 1);
  CHECK(head.seen[3].saves.empty());
  saving.write({1, 2, 3});
  saving.keep();
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(says(head.ended->message, "nodes were lost one after the other, each while it ran step 2"));
}

// Window: an error that would come again
TEST_CASE("an error that would come again ends a job once what came before it is saved",
          "[actors][errors]") {
  SavingHead saving(9, {}, one_pipeline);
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  const bool is_written = GENERATE(true, false);
  std::int32_t code = 1;
  SECTION("a sample that cannot be read") {
    head.tell(failed_atom::value, NodeId{2},
              Error{Errc::bad_data, "cut short", "x.png", "mend it"});
    code = 3;
  }
  SECTION("too many samples that are bad") {
    head.resources.setup.job.data.max_bad_fraction = 0.01;  // Of 60 records: none.
    engine::PlannedBatch batch;
    batch.batch = 2;
    batch.iteration.epoch_number = 1;
    batch.dropped.push_back({0, {"s0", data::BadKind::missing_file, "x.png", "", "gone", ""}});
    head.tell(std::make_shared<const engine::PlannedBatch>(batch));
    code = 3;
  }
  SECTION("a device without memory") {
    head.tell(failed_atom::value, NodeId{2}, EpochNumber{1},
              Error{Errc::internal, "out of memory, in step 2 on device 2", "", "give it more"});
  }
  SECTION("a device that uses more than its plan promised") {
    head.tell(failed_atom::value, NodeId{2}, EpochNumber{1},
              Error{Errc::infeasible, "activations take 2 GB", "cluster.device_memory_gib", ""});
    code = 2;
  }
  SECTION("a batch for which there is no plan") {
    head.tell(next_atom::value, EpochNumber{1},
              Error{Errc::infeasible, "the largest microbatch is above the cap", "", "raise it"});
    code = 2;
  }
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == 1);
  CHECK(saving.order().is_last);
  CHECK(saving.order().is_checked);
  head.tell(failed_atom::value, NodeId{1}, Error{Errc::io_failed, "another one", "", ""});
  CHECK_FALSE(head.ended);
  if (is_written) {
    saving.write();
    REQUIRE(head.keeper.written.size() == 1);
    CHECK(head.keeper.written[0].leaves_older);
    saving.keep();
    REQUIRE(head.ended);
    CHECK(says(head.ended->message,
               "; step 1 is saved: the same command with --resume goes on from there ("));
  } else {
    head.pass(5800ms, {0, 1, 2, 3});
    CHECK_FALSE(head.ended);
    head.pass(600ms, {0, 1, 2, 3});
    REQUIRE(head.ended);
    CHECK(says(head.ended->message,
               "; nothing is saved: it took longer than cluster.stop_timeout_s leaves"));
  }
  CHECK(head.ended->exit_code == code);
  CHECK_FALSE(says(head.ended->message, "another one"));
}

// Window: the run folder's disk fails
TEST_CASE("a run folder's disk that fails ends a job once the last finished step is saved",
          "[actors][errors]") {
  const bool is_last = GENERATE(false, true);  // Then the model is being collected.
  SavingHead saving(is_last ? 1 : 9);
  Head& head = saving.head;
  saving.run_step(1);
  if (!is_last) head.plan(1);
  const bool is_written = GENERATE(true, false);  // Checkpoints lie on another disk, or on it.
  head.tell(failed_atom::value, Error{Errc::io_failed, "writing failed", "/x", "free it"});
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == 1);
  if (is_written) {
    saving.write();
    saving.keep();
  } else {
    SaveReport report{saving.order().number, {NodeId{0}, 0}, false};
    report.error = {Errc::io_failed, "no room", "/y", ""};
    head.tell(report);
  }
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == (is_written ? 75 : 1));
  CHECK(head.ended->again == 0);  // By itself no disk gets room.
  CHECK(says(head.ended->message, "writing failed"));
  CHECK(says(head.ended->message, is_written
                                      ? "fix: step 1 is saved: the same command goes on from there"
                                      : "; nothing is saved: node 0, /y: no room"));
}

TEST_CASE("a step that is decided counts where the job ends by an error", "[actors][errors]") {
  SavingHead saving;
  Head& head = saving.head;
  head.plan(0);
  saving.prepare(1);
  head.tell(failed_atom::value, NodeId{2}, Error{Errc::bad_data, "cut short", "x.png", "mend it"});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].saves.empty());
  for (std::size_t device = 0; device < 4; ++device) head.finished(device, 1);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == 1);
  saving.write();
  saving.keep();
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 3);
}

TEST_CASE("a device that fails in the middle of its update saves nothing", "[actors][errors]") {
  const bool is_whole = GENERATE(true, false);  // The others have all of the model.
  SavingHead saving(9, {}, placed(is_whole));
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  saving.prepare(2);
  head.finished(0, 2);
  head.tell(failed_atom::value, NodeId{1}, EpochNumber{1},
            Error{Errc::internal, "out of memory, in step 2 on device 1", "", "give it more"});
  CHECK_FALSE(head.ended);
  for (const std::size_t device : {2u, 3u}) head.finished(device, 2);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == 2);
  saving.write({1});
  saving.keep();
  CHECK(head.seen[1].saves.empty());
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, "out of memory, in step 2 on device 1; "));
  CHECK(says(head.ended->message, is_whole ? "; step 2 is saved: the same command with --resume"
                                           : "; what is left of step 2 is saved ("));
}

// Window: an error that would come again
TEST_CASE("numbers that are not finite end a job with what the last finite step left",
          "[actors][errors]") {
  SavingHead saving;  // Two such steps in a row end it.
  Head& head = saving.head;
  const auto discard = [&](std::int64_t step) {
    head.plan(step - 1);
    head.run_step(step, std::numeric_limits<double>::infinity());
    CHECK_FALSE(head.seen[0].decisions.back().commit);
  };
  SECTION("no step was finite") {
    discard(1);
    discard(2);
    CHECK(head.seen[0].saves.empty());
    REQUIRE(head.ended);
    CHECK(says(head.ended->message, "; nothing is saved: no step has changed a parameter"));
  }
  SECTION("it is saved already") {
    saving.run_step(1);
    head.tell(save_atom::value);
    saving.write();
    saving.keep();
    discard(2);
    discard(3);
    CHECK(head.seen[0].saves.size() == 1);
    REQUIRE(head.ended);
    CHECK(
        says(head.ended->message, "; step 1 is saved and what followed is lost: the same command"));
  }
  SECTION("it is not saved") {
    saving.run_step(1);
    discard(2);
    discard(3);
    CHECK_FALSE(head.ended);
    REQUIRE(head.seen[0].saves.size() == 1);
    CHECK(saving.order().step == 3);
    CHECK(saving.order().is_checked);
    const bool is_poisoned = GENERATE(false, true);
    if (is_poisoned) {
      SaveReport report{saving.order().number, {NodeId{1}, 0}, false};
      report.error = {Errc::internal, "'llm.head' is not finite", "", ""};
      head.tell(report);
    } else {
      saving.write();
      saving.keep();
    }
    REQUIRE(head.ended);
    CHECK(says(head.ended->message,
               is_poisoned ? "; nothing is saved: node 1: 'llm.head' is not finite"
                           : "; step 3 is saved: the same command with --resume goes on"));
  }
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, "2 steps in a row were skipped"));
}

TEST_CASE("a job that is to stop ends by the error that it meets, and saves all the same",
          "[actors][errors]") {
  SavingHead saving;
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  head.tell(stop_atom::value, std::int32_t{SIGTERM});
  head.tell(failed_atom::value, NodeId{2}, Error{Errc::bad_data, "cut short", "x.png", "mend it"});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].saves.size() == 1);
  saving.write();
  saving.keep();
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 3);
  CHECK(says(head.ended->message, "cut short; step 1 is saved: the same command with --resume"));
}

}  // namespace
}  // namespace troupe::actors
