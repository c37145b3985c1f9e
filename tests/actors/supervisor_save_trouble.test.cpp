// Saves that are late, fail or take too long, and jobs that are stopped or fail meanwhile.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_save.hpp"

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/actors/saving_head.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a save that is late is said and not queued; the last state only waits", "[actors]") {
  SavingHead saving(3, [](job::Checkpointing& x) { x.every_steps = 1; });
  Head& head = saving.head;
  saving.run_step(1);
  saving.run_step(2);
  CHECK(head.seen[0].saves.size() == 1);
  CHECK(saving.log().find("no checkpoint of step 2: that of step 1 is still being written") !=
        std::string::npos);
  const auto length = saving.log().size();
  saving.run_step(3);
  CHECK(saving.log().find("no checkpoint", length) == std::string::npos);
  saving.write();
  saving.keep();
  REQUIRE(head.seen[0].saves.size() == 2);
  CHECK(saving.order().step == 3);
}

TEST_CASE("of a save that is late others are told once", "[actors]") {
  SavingHead saving(9, [](job::Checkpointing& x) { x.every_steps = 1; });
  for (std::int64_t step = 1; step <= 4; ++step) saving.run_step(step);
  const std::string log = saving.log(), words = "is still being written";
  CHECK(log.find(words) == log.rfind(words));
  CHECK(log.find(words) != std::string::npos);
  CHECK(saving.head.seen[0].saves.size() == 1);
}

TEST_CASE("a checkpoint is completed behind the lines of its steps", "[actors]") {
  SavingHead saving(9, [](job::Checkpointing& x) { x.every_steps = 1; });
  Head& head = saving.head;
  head.recorder.syncs_late = true;
  saving.run_step(1);
  saving.write();
  CHECK(head.recorder.syncs == 1);
  CHECK(head.keeper.written.empty());
  SECTION("they are on disk") {
    caf::anon_send(head.actors.recorder, begin_atom::value, Configuration{});
    head.pass(1ms, {});
  }
  SECTION("their folder hangs") {
    head.pass(2s, {0, 1, 2, 3});
    CHECK(head.keeper.written.empty());
    head.pass(2s, {0, 1, 2, 3});
  }
  CHECK(head.keeper.written.size() == 1);
}

TEST_CASE("a stop that saves would not fit into is told once", "[actors]") {
  SavingHead saving(9, [](job::Checkpointing& x) { x.every_steps = 1; });  // Of 8 s: 6 to save.
  const std::string words = "raise cluster.stop_timeout_s to 19";
  for (std::int64_t step = 1; step <= 3; ++step) {
    saving.run_step(step);
    saving.head.pass(step == 1 ? 5s : 7s, {0, 1, 2, 3});
    saving.write();
    saving.keep();
    CHECK((saving.log().find(words) != std::string::npos) == (step > 1));
  }
  CHECK(saving.log().find(words) == saving.log().rfind(words));
}

TEST_CASE("a checkpoint that took too long is one when it is complete", "[actors]") {
  SavingHead saving(9, [](job::Checkpointing& x) {
    x.every_steps = 2;
    x.timeout_s = 5;
  });
  Head& head = saving.head;
  saving.run_step(1);
  saving.run_step(2);
  saving.write();
  head.pass(6s, {0, 1, 2, 3});
  CHECK(saving.log().find("within 5 s") != std::string::npos);
  saving.keep();
  CHECK(saving.log().find("step 2 saved") != std::string::npos);
  REQUIRE_FALSE(head.recorder.events.empty());
  CHECK(head.recorder.events.back().kind == "checkpoint");
  head.tell(stop_atom::value, std::int32_t{SIGTERM});
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 75);
  CHECK(says(head.ended->message, "step 2 is saved"));
}

TEST_CASE("a disk that fails ends a job so that it can go on where it trained and saved",
          "[actors][errors]") {
  SavingHead saving(9, [](job::Checkpointing& x) { x.every_steps = 1; });
  Head& head = saving.head;
  const bool saved = GENERATE(true, false);
  if (saved) {
    saving.run_step(1);
    saving.write();
    saving.keep();
  }
  head.tell(failed_atom::value, Error{Errc::io_failed, "writing failed", "/x", "free it"});
  REQUIRE(head.ended);
  CHECK((head.ended->exit_code == 75) == saved);
  CHECK(head.ended->again == 0);  // By itself no disk gets room.
  CHECK(says(head.ended->message, "writing failed"));
}

TEST_CASE("a disk that fails before a job's first step ends it for good", "[actors][errors]") {
  const testing::ScratchFolder scratch;
  engine::ResumePoint resume;
  resume.folder = scratch / "step-5";
  resume.progress.step = 5;
  resume.progress.generation = 4;
  Head head(9, {}, resume);
  head.join_all();
  head.bring_up(5);
  const bool has_trained = GENERATE(false, true);
  if (has_trained) {
    head.plan(5);
    for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 6, 1, 1, 5);
    for (std::size_t device = 0; device < 4; ++device) head.finished(device, 6, 5);
  }
  head.tell(failed_atom::value, Error{Errc::io_failed, "writing failed", "/x", "free it"});
  CHECK(head.ended.has_value() != has_trained);
  if (has_trained) {  // Nor can step 6 be saved.
    REQUIRE(head.seen[0].saves.size() == 1);
    SaveReport report{head.seen[0].saves[0].number, {NodeId{0}, 0}, false};
    report.error = {Errc::io_failed, "no room", "", ""};
    head.tell(report);
  }
  REQUIRE(head.ended);
  CHECK((head.ended->exit_code == 75) == has_trained);
}

TEST_CASE("a save that fails is a warning with the fix, and training goes on", "[actors][errors]") {
  SavingHead saving(4, [](job::Checkpointing& x) {
    x.every_steps = 2;
    x.timeout_s = 5;
  });
  Head& head = saving.head;
  saving.run_step(1);
  saving.run_step(2);
  SECTION("a device cannot write") {
    SaveReport report{saving.order().number, {NodeId{1}, 0}, false};
    report.error = {Errc::io_failed, "writing failed: No space left on device", "/x", "free it"};
    head.tell(report);
    CHECK(saving.log().find("node 1, /x: writing failed: No space left") != std::string::npos);
  }
  SECTION("the keeper cannot") {
    saving.write();
    saving.keep(Error{Errc::io_failed, "renaming failed", "/y", "do this"});
    CHECK(saving.log().find("renaming failed") != std::string::npos);
  }
  SECTION("it takes too long") {
    head.pass(6s, {0, 1, 2, 3});
    CHECK(saving.log().find("within 5 s") != std::string::npos);
    saving.write();  // What comes now is of no save.
    CHECK(head.keeper.written.empty());
  }
  CHECK(saving.log().find("training goes on") != std::string::npos);
  CHECK((head.keeper.discarded.front() == saving.order().folder));
  CHECK_FALSE(head.ended);
  saving.run_step(3);
  saving.run_step(4);
  CHECK(head.seen[0].saves.size() == 2);
}

TEST_CASE("what others still wrote of a save that failed is removed once they are done",
          "[actors][errors]") {
  SavingHead saving(4, [](job::Checkpointing& x) { x.every_steps = 1; });
  Head& head = saving.head;
  saving.run_step(1);
  const std::string folder = saving.order().folder;
  SaveReport report{saving.order().number, {NodeId{1}, 0}, false};
  report.error = {Errc::io_failed, "writing failed: No space left on device", "/x", "free it"};
  head.tell(report);
  CHECK((head.keeper.discarded == std::vector{folder}));
  saving.run_step(2);  // The next one is on its way.
  const auto number = saving.order().number;
  SaveReport late{report.number, {NodeId{0}, 0}, true};
  head.tell(late);
  CHECK((head.keeper.discarded == std::vector{folder, folder}));
  late.number = number;
  head.tell(late);
  CHECK(head.keeper.discarded.size() == 2);
}

TEST_CASE("a stop does not wait for ever for its save", "[actors][errors]") {
  SavingHead saving(
      9, [](job::Checkpointing& x) { x.every_steps = 1; }, one_pipeline);
  Head& head = saving.head;
  saving.run_step(1);
  const bool has_older = GENERATE(true, false);
  if (has_older) {
    saving.write();
    saving.keep();
    saving.run_step(2);
  }
  head.tell(stop_atom::value, std::int32_t{SIGINT});
  CHECK_FALSE(head.ended);
  SECTION("time") {
    head.pass(5800ms, {0, 1, 2, 3});
    CHECK_FALSE(head.ended);
    head.pass(600ms, {0, 1, 2, 3});
  }
  SECTION("a second signal") { head.tell(stop_atom::value, std::int32_t{SIGINT}); }
  SECTION("a failure") {
    SaveReport report{saving.order().number, {NodeId{1}, 0}, false};
    report.error = {Errc::io_failed, "no room", "", ""};
    head.tell(report);
    CHECK_FALSE(head.ended);  // That save was begun before; one more is tried.
    report.number = saving.order().number;
    head.tell(report);
  }
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == (has_older ? 75 : 130));
  CHECK(says(head.ended->message, has_older ? "step 1 is saved and what followed is lost"
                                            : "there is no checkpoint to resume from"));
}

/// Events of losses, which come before all others here.
std::ptrdiff_t losses_told(const Head& head) {
  return std::ranges::count(head.recorder.events, "lost", &observe::RunEvent::kind);
}

// Window: the job stops
TEST_CASE("a node that is lost while the job stops is done without", "[actors][recovery]") {
  SavingHead saving(9, [](job::Checkpointing&) {});
  Head& head = saving.head;
  saving.run_step(1);
  std::size_t orders = 1;
  std::int64_t saved = 1;
  SECTION("while it saves") {
    head.tell(stop_atom::value, std::int32_t{SIGTERM});
    head.leave({3});
    orders = 2;
  }
  SECTION("in a step that is not decided, before anything is saved") {
    head.plan(1);
    head.tell(stop_atom::value, std::int32_t{SIGTERM});
    head.leave({3});
    orders = 2;  // The step stands in nobody's way.
  }
  SECTION("in a step whose end it has not said") {
    head.plan(1);
    for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 2, 1, 1);
    head.tell(stop_atom::value, std::int32_t{SIGTERM});
    for (std::size_t device = 0; device < 3; ++device) head.finished(device, 2);
    CHECK(head.seen[0].saves.empty());
    head.leave({3});
    saved = 2;
  }
  head.pass(400ms, {0, 1, 2});
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].saves.size() == orders);
  CHECK(saving.order().step == saved);
  for (std::size_t node = 0; node < 3; ++node)
    for (const Shard& shard : saving.order(node).shards)
      CHECK(shard.holders[0].node == NodeId{node});
  saving.write({3});
  saving.keep();
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 75);
  CHECK(says(head.ended->message, "step " + std::to_string(saved) + " is saved:"));
  CHECK(says(saving.log(), "was lost: the connection to it was lost; the others save what"));
  REQUIRE(losses_told(head) == 1);  // No layout follows, and it is told all the same.
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{3}}));
  CHECK(head.recorder.events[0].generation == 1);
  CHECK_FALSE(head.recorder.events[0].has_layout);
  CHECK(head.recorder.events[0].tolerance_left == 0);
}

// Window: the job stops
TEST_CASE("a job that is to stop amid a layout that comes up saves without a node that is lost",
          "[actors][recovery]") {
  SavingHead saving(9, [](job::Checkpointing&) {});
  Head& head = saving.head;
  saving.run_step(1);
  head.leave({3});  // Nodes 0 and 1 have all of the model, and half of it is on node 2.
  REQUIRE(head.seen[0].configurations.size() == 2);
  const bool turns_over = GENERATE(false, true);
  if (turns_over)
    for (const std::size_t id : {0u, 1u, 2u})
      head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  head.tell(stop_atom::value, std::int32_t{SIGTERM});
  CHECK(head.seen[0].saves.empty());  // The layout is waited for.
  head.leave({2});
  head.pass(400ms, {0, 1});
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == 1);
  for (const std::size_t id : {0u, 1u}) CHECK_FALSE(saving.order(id).shards.empty());
  for (const std::size_t id : {0u, 1u})  // What is said of the layout is no news any more.
    head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  CHECK(head.seen[0].saves.size() == 1);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{3}, NodeId{2}}));
  saving.write({2, 3});
  saving.keep();
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 75);
  CHECK(says(head.ended->message, "step 1 is saved: the same command goes on from there"));
  CHECK(losses_told(head) == 1);
}

// Window: nobody left sees a source of data, or no layout fits them
TEST_CASE("a node without which no layout can be leaves its state to the others, who save it",
          "[actors][recovery]") {
  SavingHead saving(
      9, [](job::Checkpointing&) {}, [](job::Job& job) { job.recovery.wait_for_nodes_s = 0; });
  Head& head = saving.head;
  const bool has_trained = GENERATE(true, false);
  if (has_trained) saving.run_step(1);
  head.plan(has_trained ? 1 : 0);
  head.resources.setup.job.data.sources = {{"llava", "samples.json", "", {3}}};  // Seen by node 3.
  head.leave({3});
  head.pass(400ms, {0, 1, 2});
  CHECK(head.ended.has_value() != has_trained);
  if (has_trained) {
    REQUIRE(head.seen[0].saves.size() == 1);
    CHECK(saving.order().step == 1);  // The other step is not decided.
    saving.write({3});
    saving.keep();
  }
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == (has_trained ? 75 : 1));
  CHECK(
      says(head.ended->message, "node 3 (host, pid 103) was lost: the connection to it was lost"));
  CHECK(says(head.ended->message,
             "it cannot be done without: no node of the layout sees data.sources[0]"));
  REQUIRE(losses_told(head) == 1);
  CHECK(head.recorder.events[0].step == (has_trained ? 2 : 1));
  CHECK((head.recorder.events[0].nodes == std::vector<NodeId>{NodeId{3}}));
  CHECK(says(head.recorder.events[0].why, "the connection to it was lost"));
  CHECK(says(head.ended->message, has_trained ? "step 1 is saved: the same command goes on"
                                              : "there is no checkpoint to resume from"));
}

TEST_CASE("a lost node ends a job that has a checkpoint so that it can go on", "[actors][errors]") {
  SavingHead saving(
      9, [](job::Checkpointing& x) { x.every_steps = 1; }, one_pipeline);
  Head& head = saving.head;
  saving.run_step(1);
  const bool is_saved = GENERATE(true, false);
  if (is_saved) {
    saving.write();
    saving.keep();
  }
  saving.run_step(2);
  head.leave({3});
  head.pass(400ms, {0, 1, 2});
  CHECK(head.ended.has_value() == is_saved);
  if (!is_saved) {  // What is left is all that there is.
    saving.write({3});
    saving.keep();
  }
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 75);
  CHECK(says(head.ended->message, "node 3 (host, pid 103) was lost"));
  CHECK(says(head.ended->message, is_saved ? "step 1 is saved and what followed is lost: the "
                                             "job begins again from there"
                                           : "; what is left of step 2 is saved ("));
}

}  // namespace
}  // namespace troupe::actors
