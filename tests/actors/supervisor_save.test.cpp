#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_save.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <set>
#include <string>
#include <vector>

#include "tests/actors/saving_head.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a job saves every n steps: each shard once, one holder writes it", "[actors]") {
  SavingHead saving(4, [](job::Checkpointing& x) { x.every_steps = 2; });
  Head& head = saving.head;
  saving.run_step(1);
  CHECK(head.seen[0].saves.empty());
  saving.run_step(2);
  std::set<ShardKey> keys;
  for (std::size_t node = 0; node < 4; ++node) {
    REQUIRE(head.seen[node].saves.size() == 1);
    CHECK(saving.order(node).step == 2);
    for (const Shard& shard : saving.order(node).shards) {
      CHECK((shard.holders == std::vector{DeviceSlot{NodeId{node}, 0}}));
      CHECK(keys.insert(shard.key).second);
    }
  }
  CHECK(keys.size() == 2 * head.resources.setup.parameters.size());  // Values and moments, fp64.

  saving.write({3});
  CHECK(head.keeper.written.empty());
  saving.write({0, 1, 2});
  REQUIRE(head.keeper.written.size() == 1);
  const WrittenCheckpoint& written = head.keeper.written[0];
  CHECK(written.folder ==
        std::filesystem::absolute(saving.scratch / "run") / "checkpoints" / "step-2");
  CHECK(written.partial == saving.order().folder);
  CHECK(written.resolved_job == "the job");
  const auto& manifest = written.manifest;
  CHECK(manifest.progress.step == 2);
  CHECK(manifest.progress.generation == 1);
  CHECK(manifest.progress.tokens > 0);
  CHECK((manifest.progress.data == DataOrder{60, 7, 6, 3, true, {{0, {60}}}}));
  // What the keeper would write can be read again.
  CHECK(state::parse_manifest(state::manifest_json(manifest)).value() == manifest);
  CHECK(saving.log().find("saved") == std::string::npos);
  saving.keep();
  CHECK(saving.log().find("step 2 saved") != std::string::npos);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].kind == "checkpoint");
  CHECK(head.recorder.events[0].step == 3);
  saving.run_step(3);
  CHECK(head.recorder.steps.at(2)->metrics.checkpoint_ms >= 0);
  CHECK(head.seen[0].saves.size() == 1);
}

TEST_CASE("a checkpoint has what was learned when its save was ordered, and waits for it",
          "[actors]") {
  SavingHead saving(2, [](job::Checkpointing& x) { x.every_steps = 1; });
  Head& head = saving.head;
  LearnedCosts learned;
  learned.stages = {{"llm 0-4 on 1.0", {"llm"}, 1.5}};
  SECTION("it comes first") {
    head.scheduler.learned = learned;
    saving.run_step(1);
    CHECK(head.keeper.written.empty());
    saving.write();
  }
  SECTION("it comes last") {
    head.scheduler.is_planning = true;
    saving.run_step(1);
    saving.write();
    CHECK(head.keeper.written.empty());
    head.tell(save_atom::value, saving.order().number + 1,
              std::make_shared<const LearnedCosts>());  // Of another save.
    CHECK(head.keeper.written.empty());
    head.tell(save_atom::value, saving.order().number,
              std::make_shared<const LearnedCosts>(learned));
  }
  REQUIRE(head.keeper.written.size() == 1);
  CHECK((head.keeper.written[0].manifest.progress.learned == learned));
}

TEST_CASE("the job ends when its last checkpoint is complete", "[actors]") {
  SavingHead saving(2, [](job::Checkpointing& x) { x.every_steps = 1; });
  Head& head = saving.head;
  saving.run_step(1);
  CHECK_FALSE(saving.order().is_last);
  saving.write();
  saving.keep();
  saving.run_step(2);
  REQUIRE(head.seen[0].saves.size() == 2);
  CHECK(saving.order().is_last);
  for (std::size_t node = 0; node < 4; ++node) head.tell(Offers{NodeId{node}, 1, {}});
  CHECK(head.seen[0].stops.empty());
  saving.write();
  saving.keep();
  CHECK(head.seen[0].stops.size() == 1);
}

TEST_CASE("somebody who wants a checkpoint gets that of the last step", "[actors]") {
  SavingHead saving(9, [](job::Checkpointing&) {});
  Head& head = saving.head;
  head.tell(save_atom::value);
  CHECK(head.seen[0].saves.empty());  // Nothing is trained yet.
  saving.run_step(1);
  REQUIRE(head.seen[0].saves.size() == 1);
  head.tell(save_atom::value);
  CHECK(saving.log().find("step 1 is being saved already") != std::string::npos);
  saving.write();
  saving.keep();
  CHECK(head.seen[0].saves.size() == 1);
  head.tell(save_atom::value);
  CHECK(head.seen[0].saves.size() == 1);
  CHECK(saving.log().find("step 1 is saved already") != std::string::npos);
  head.plan(1);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 2, 1, 1);
  head.tell(save_atom::value);  // The second step changes the state now.
  CHECK(head.seen[0].saves.size() == 1);
  for (std::size_t device = 0; device < 4; ++device) head.finished(device, 2);
  REQUIRE(head.seen[0].saves.size() == 2);
  CHECK(saving.order().step == 2);
}

TEST_CASE("a signal saves the last finished step and ends the job with 75", "[actors]") {
  SavingHead saving(
      9, [](job::Checkpointing&) {}, one_pipeline);
  Head& head = saving.head;
  saving.run_step(1);
  head.plan(1);
  const auto prepare_second = [&] {
    for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 2, 1, 1);
  };
  std::int64_t saved = 1;
  SECTION("in the middle of a step, which is left") {
    head.tell(stop_atom::value, std::int32_t{SIGTERM});
    prepare_second();
    CHECK(head.seen[0].decisions.size() == 1);  // Nothing new changes the state.
  }
  SECTION("between a decision and its end: that step still counts") {
    prepare_second();
    head.tell(stop_atom::value, std::int32_t{SIGTERM});
    CHECK(head.seen[0].saves.empty());
    for (std::size_t device = 0; device < 4; ++device) head.finished(device, 2);
    saved = 2;
  }
  SECTION("a node's own signal") {
    head.tell(failed_atom::value, NodeId{2}, Error{Errc::cancelled, "stopped by SIGTERM", "", ""});
    head.pass(600ms, {0, 1, 2, 3});
  }
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(saving.order().step == saved);
  CHECK(saving.order().is_last);
  CHECK(head.seen[0].stops.empty());
  saving.write();
  saving.keep();
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 75);
  CHECK(says(head.ended->message, "stopped by SIGTERM"));
  CHECK(says(head.ended->message, "step " + std::to_string(saved) + " is saved"));
  CHECK(says(head.ended->message, "step-" + std::to_string(saved)));
  // Whoever started a node by hand, or a cluster that did, learns that it may be started again.
  CHECK(head.seen[0].exit_codes == std::vector<std::int32_t>{75});
}

TEST_CASE("a job that goes on begins with what is saved, in a generation of its own", "[actors]") {
  const testing::ScratchFolder scratch;
  engine::ResumePoint resume;
  resume.folder = scratch / "step-5";
  resume.progress.step = 5;
  resume.progress.tokens = 500;
  resume.progress.generation = 4;
  resume.progress.skipped.count = 2;
  resume.progress.bad = {{"s9", 1}};
  Head head(
      9, [](job::Job& job) { job.data.max_bad_fraction = 1; }, resume);
  head.join_all();
  REQUIRE(head.seen[0].configurations.size() == 1);
  CHECK(head.seen[0].configurations[0].checkpoint == resume.folder.string());
  CHECK(head.seen[0].configurations[0].epoch_number == 5);
  head.bring_up(5);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].kind == "resumed");
  CHECK(head.recorder.events[0].generation == 5);
  head.plan(5);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 6, 1, 1, 5);
  for (std::size_t device = 0; device < 4; ++device) head.finished(device, 6, 5);
  REQUIRE(head.recorder.steps.size() == 1);
  CHECK(head.recorder.steps[0]->metrics.step == 6);
  CHECK(head.recorder.steps[0]->metrics.skipped_steps == 2);
  CHECK(head.recorder.steps[0]->metrics.bad_samples == 1);
}

TEST_CASE("a job that goes on and is stopped at once is where it was", "[actors]") {
  engine::ResumePoint resume;
  resume.folder = "/checkpoints/step-5";
  resume.progress.step = 5;
  Head head(9, {}, resume);
  head.join_all();
  head.tell(stop_atom::value, std::int32_t{SIGINT});
  head.leave({0, 1, 2, 3});
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 75);
  CHECK(says(head.ended->message, "step 5 is saved"));
}

}  // namespace
}  // namespace troupe::actors
