// Jobs that lose a last copy and do not go back to a checkpoint: what lives is saved.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/saved_parts.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/actors/saving_head.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// A job each of whose nodes alone has a part of the model.
struct ScatteredModel {
  explicit ScatteredModel(std::int32_t every_steps = 0, bool goes_back = true)
      : saving(
            9, [=](job::Checkpointing& x) { x.every_steps = every_steps; },
            [=](job::Job& job) {
              one_pipeline(job);
              job.recovery.from_checkpoint = goes_back;
            }) {}

  void lose(std::size_t node, const std::vector<std::size_t>& left) {
    saving.head.lose(node);
    saving.head.pass(400ms, left);
  }

  SavingHead saving;
};

// Window: nobody holds a shard any more
TEST_CASE("what lives of a model is saved, and what is missing named", "[actors][recovery]") {
  ScatteredModel job;
  SavingHead& saving = job.saving;
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  job.lose(3, {0, 1, 2});
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == 1);  // The other step is not decided.
  CHECK(saving.order().is_last);
  CHECK(saving.order().is_checked);
  CHECK(says(saving.log(), "the others save what they have though no other node has llm."));
  saving.write({3});
  REQUIRE(head.keeper.written.size() == 1);
  const WrittenCheckpoint& written = head.keeper.written[0];
  CHECK(written.folder.filename() == "step-1.incomplete-2");
  CHECK(written.leaves_older);
  const state::CheckpointManifest& manifest = written.manifest;
  CHECK(manifest.shards.size() + manifest.missing.size() ==
        2 * head.resources.setup.parameters.size());  // Values and moments.
  REQUIRE_FALSE(manifest.missing.empty());
  for (const state::MissingShard& shard : manifest.missing) {
    CHECK(shard.held_by == "node 3 (host, pid 103)");
    const ParameterInfo& info = head.resources.setup.parameters[shard.key.parameter.index()];
    CHECK(says(info.name, "llm."));
  }
  CHECK(state::parse_manifest(state::manifest_json(manifest)).value() == manifest);
  saving.keep();
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(head.ended->again == 0);
  CHECK(says(head.ended->message, "node 3 (host, pid 103) was lost: was killed by signal 9"));
  CHECK(says(head.ended->message, "no other node has llm."));
  CHECK(
      says(head.ended->message, "; what is left of step 1 is saved (" + written.folder.string() +
                                    "), which is not all of the model: nobody held any more llm."));
  CHECK(says(head.ended->message, "(last held by node 3 (host, pid 103))"));
  CHECK(
      says(head.ended->message, "\n  fix: no checkpoint is whole: put another save of this step"));
  for (const std::size_t id : {0u, 1u, 2u})
    CHECK(head.seen[id].exit_codes == std::vector<std::int32_t>{kResumable});
  REQUIRE_FALSE(head.recorder.events.empty());
  const observe::RunEvent& event = head.recorder.events.back();
  CHECK(event.kind == "incomplete");
  CHECK(event.step == 2);
  CHECK((event.nodes == std::vector<NodeId>{NodeId{3}}));
  CHECK(says(event.why, written.folder.string()));
  CHECK(event.tolerance_left == 0);
}

TEST_CASE("what lives is saved where the job does not go back to its checkpoint by itself",
          "[actors][recovery]") {
  const bool goes_back = GENERATE(true, false);
  ScatteredModel job(2, goes_back);
  SavingHead& saving = job.saving;
  Head& head = saving.head;
  saving.run_step(1);
  saving.run_step(2);
  saving.write();
  saving.keep();
  saving.run_step(3);
  job.lose(3, {0, 1, 2});
  CHECK(head.ended.has_value() == goes_back);
  if (!goes_back) {
    CHECK(saving.order().step == 3);
    saving.write({3});
    saving.keep();
  }
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.keeper.written.size() == (goes_back ? 1 : 2));
  CHECK(head.ended->exit_code == kResumable);
  CHECK(head.ended->again == (goes_back ? 1 : 0));
  CHECK(says(head.ended->message, "what is left of step 3 is saved (") != goes_back);
  CHECK(says(head.ended->message,
             goes_back ? "step 2 is saved and what followed is lost: the job begins again"
                       : "fix: step 2 is saved and what followed is lost: the same command goes "
                         "on from there ("));
}

TEST_CASE("nothing is saved of a model that has not changed since its checkpoint",
          "[actors][recovery]") {
  ScatteredModel job(1, false);
  SavingHead& saving = job.saving;
  saving.run_step(1);
  saving.write();
  saving.keep();
  job.lose(3, {0, 1, 2});
  REQUIRE(saving.head.ended);
  CHECK(saving.head.keeper.written.size() == 1);
  CHECK(saving.head.ended->exit_code == kResumable);
  CHECK(says(saving.head.ended->message, "step 1 is saved: the same command goes on from there"));
}

TEST_CASE("a step whose COMMIT is known counts where a last copy is lost", "[actors][recovery]") {
  ScatteredModel job;
  SavingHead& saving = job.saving;
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 2, 1, 1);
  job.lose(3, {0, 1, 2});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].saves.empty());
  for (std::size_t device = 0; device < 3; ++device) head.finished(device, 2);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == 2);
}

TEST_CASE("another loss while what lives is saved leaves out what goes with it",
          "[actors][recovery]") {
  ScatteredModel job;
  SavingHead& saving = job.saving;
  Head& head = saving.head;
  saving.run_step(1);
  job.lose(3, {0, 1, 2});
  REQUIRE(head.seen[0].saves.size() == 1);
  job.lose(2, {0, 1});
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].saves.size() == 2);
  saving.write({2, 3});
  saving.keep();
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(says(head.ended->message,
             "(last held by node 2 (host, pid 102) and node 3 (host, pid 103))"));
}

// Window: nobody holds a shard any more
TEST_CASE("what lives of a model is saved where a device fails, also while the job stops",
          "[actors][recovery]") {
  ScatteredModel job;
  SavingHead& saving = job.saving;
  Head& head = saving.head;
  saving.run_step(1);
  const bool is_stopping = GENERATE(false, true);
  if (is_stopping) head.tell(stop_atom::value, std::int32_t{SIGTERM});
  engine::FailedWork failed{0, 1};
  failed.error = {Errc::internal, "CUDA error: uncorrectable ECC error", {}, "look at it"};
  failed.by_device = true;
  head.tell(NodeId{3}, failed);
  CHECK_FALSE(head.ended);
  CHECK(head.seen[3].stops.size() == 1);
  CHECK(head.seen[3].saves.size() == (is_stopping ? 1 : 0));  // Before that.
  REQUIRE(head.seen[0].saves.size() == (is_stopping ? 2 : 1));
  saving.write({3});
  saving.keep();
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(says(head.ended->message,
             is_stopping ? "stopped by SIGTERM" : "node 3 (host, pid 103) was lost: CUDA error: "));
  CHECK(says(head.ended->message, "; what is left of step 1 is saved ("));
  CHECK(says(saving.log(), "node 3 (host, pid 103): CUDA error: uncorrectable ECC error"));
}

// Window: the job stops
TEST_CASE("a job that is to stop saves what is left without a last copy", "[actors][recovery]") {
  ScatteredModel job;
  SavingHead& saving = job.saving;
  Head& head = saving.head;
  saving.run_step(1);
  head.tell(stop_atom::value, std::int32_t{SIGTERM});
  const bool has_written = GENERATE(false, true);  // Its own share, before it is lost.
  if (has_written) {
    SaveReport report{saving.order(3).number, {NodeId{3}, 0}, true};
    report.file = "state-3";
    report.bytes = 10;
    report.sha256 = "ab";
    head.tell(report);
  }
  job.lose(3, {0, 1, 2});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].saves.size() == (has_written ? 1 : 2));
  saving.write({3});
  REQUIRE(head.keeper.written.size() == 1);
  CHECK(head.keeper.written[0].folder.filename() ==
        (has_written ? "step-1" : "step-1.incomplete-2"));
  saving.keep();
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(says(head.ended->message, "stopped by SIGTERM"));
  CHECK(says(head.ended->message, has_written ? "step 1 is saved: the same command goes on"
                                              : "; what is left of step 1 is saved ("));
}

TEST_CASE("an error that would come again names the part that is saved before it ends a job",
          "[actors][recovery][errors]") {
  ScatteredModel job;
  SavingHead& saving = job.saving;
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  head.tell(failed_atom::value, NodeId{2}, Error{Errc::bad_data, "cut short", "x.png", "mend it"});
  job.lose(3, {0, 1, 2});
  CHECK_FALSE(head.ended);
  saving.write({3});
  saving.keep();
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == 3);  // It would come again.
  CHECK(says(head.ended->message, "cut short; what is left of step 1 is saved ("));
  CHECK(says(head.ended->message, "; no checkpoint is whole: put another save of this step"));
  CHECK(says(head.ended->message, "\n  fix: mend it"));
}

TEST_CASE("what lives and cannot be written goes with the job", "[actors][recovery][errors]") {
  ScatteredModel job;
  SavingHead& saving = job.saving;
  Head& head = saving.head;
  saving.run_step(1);
  job.lose(3, {0, 1, 2});
  SaveReport report{saving.order().number, {NodeId{1}, 0}, false};
  report.error = {Errc::io_failed, "no room", "", ""};
  head.tell(report);
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, "there is no checkpoint to resume from"));
}

}  // namespace
}  // namespace troupe::actors
