#include "actors/coordination/step_loop.hpp"

#include <catch2/catch_test_macros.hpp>

#include <limits>
#include <string>

namespace troupe::actors {
namespace {

constexpr EpochNumber kGeneration = 3;

StepLoop loop_of(std::int64_t steps, JobProgress before = {}) {
  job::Job job;
  job.train.duration = {job::DurationUnit::steps, steps};
  const engine::SkippedSteps skipped(2, 1000, before.skipped);
  return {std::move(before), engine::TrainingLength(job, data::Epochs(1000)), skipped};
}

/// Of one sample with four tokens; none: all were bad.
std::shared_ptr<engine::PlannedBatch> batch(std::int64_t number, bool is_empty = false) {
  auto batch = std::make_shared<engine::PlannedBatch>();
  batch->batch = number;
  batch->span = {0, number, number + 1};
  batch->iteration.epoch_number = kGeneration;
  if (is_empty) {
    batch->dropped.emplace_back().why.id = "bad " + std::to_string(number);
    return batch;
  }
  batch->iteration.samples.resize(1);
  batch->iteration.samples[0].llm_tokens = 4;
  batch->iteration.trained_tokens = 3;
  return batch;
}

engine::Prepared ready(std::int64_t step, int device, double squared = 1) {
  engine::Prepared report{step, kGeneration, DeviceId{device}, {}, {}};
  report.norms.push_back({GroupId{device}, squared, true});
  return report;
}

engine::DeviceReport done(std::int64_t step, int device, EpochNumber generation = kGeneration) {
  return {step, generation, DeviceId{device}, {}, {}, {}, {}, 0, {}};
}

TEST_CASE("a step is decided once all its devices are PREPARED, and counts once all have ended",
          "[coordination]") {
  StepLoop loop = loop_of(2);
  loop.ask();
  CHECK_FALSE(loop.has_room());
  loop.add(batch(0), 2, 5);
  CHECK(loop.has_room());
  CHECK_FALSE(loop.prepared(ready(1, 0)));
  CHECK_FALSE(loop.prepared(ready(1, 0)));  // Again.
  auto older = ready(1, 1);
  older.epoch_number = kGeneration - 1;
  CHECK_FALSE(loop.prepared(older));
  CHECK_FALSE(loop.prepared(ready(2, 1)));  // No such step.
  CHECK((loop.under_way().front().waiting_for == std::set{DeviceId{1}}));
  CHECK(loop.prepared(ready(1, 1)));
  CHECK_FALSE(loop.is_decided());
  const auto verdict = loop.decide(1, 0);
  REQUIRE(verdict);
  CHECK(verdict->decision.commit);
  CHECK(verdict->note.tokens == 4);
  CHECK(loop.is_decided());
  CHECK(loop.progress().step == 0);
  CHECK_FALSE(loop.device_finished(done(1, 0, kGeneration - 1)));
  CHECK(loop.device_finished(done(1, 0)));
  CHECK_FALSE(loop.is_ended());
  CHECK(loop.device_finished(done(1, 1)));
  CHECK(loop.is_ended());
  CHECK(loop.finish().reports.size() == 2);
  CHECK(loop.progress().step == 1);
  CHECK(loop.progress().tokens == 4);
}

TEST_CASE("two steps are under way at most, and the last one is known when it is planned",
          "[coordination]") {
  StepLoop loop = loop_of(2);
  loop.add(batch(0), 1, 0);
  CHECK_FALSE(loop.is_last_planned());
  loop.add(batch(1), 1, 0);
  CHECK(loop.is_last_planned());
  CHECK_FALSE(loop.has_room());
  CHECK(loop.under_way()[1].tokens_before == 4);
}

TEST_CASE("what is not finite is discarded, and counts as a step that was skipped",
          "[coordination]") {
  StepLoop loop = loop_of(3);
  loop.add(batch(0), 1, 0);
  REQUIRE(loop.prepared(ready(1, 0, std::numeric_limits<double>::infinity())));
  const auto verdict = loop.decide(1, 0);
  REQUIRE(verdict);
  CHECK_FALSE(verdict->decision.commit);
  loop.device_finished(done(1, 0));
  CHECK(loop.finish().counted.ok());
  CHECK(loop.skipped_steps() == 1);
  CHECK(loop.progress_now(kGeneration).skipped.nonfinite_in_a_row == 1);
}

TEST_CASE("nobody hears of a step without samples, and the next one tells of what was bad",
          "[coordination]") {
  StepLoop loop = loop_of(3);
  loop.add(batch(0, true), 1, 0);
  CHECK_FALSE(loop.decide(1, 0));
  loop.finish();
  CHECK(loop.progress().step == 1);
  CHECK(loop.bad_samples() == 1);
  loop.add(batch(1), 1, 0);
  loop.prepared(ready(2, 0));
  const auto verdict = loop.decide(2, 0);
  REQUIRE(verdict);
  CHECK(verdict->note.bad.size() == 1);
  loop.device_finished(done(2, 0));
  loop.finish();
  loop.add(batch(2), 1, 0);
  loop.prepared(ready(3, 0));
  CHECK(loop.decide(3, 0)->note.bad.empty());  // They were told.
}

TEST_CASE("a device that is gone is not waited for", "[coordination]") {
  StepLoop loop = loop_of(2);
  loop.add(batch(0), 2, 0);
  loop.prepared(ready(1, 0));
  loop.prepared(ready(1, 1));
  loop.decide(1, 0);
  loop.device_finished(done(1, 0));
  loop.without({DeviceId{1}});
  CHECK(loop.is_ended());
}

TEST_CASE("after a rewind nothing counts that was planned beyond the last finished step",
          "[coordination]") {
  JobProgress before;
  before.step = 5;
  before.tokens = 20;
  before.bad = {{"bad", 2}};
  StepLoop loop = loop_of(7, before);
  CHECK(loop.planned_steps() == 5);
  CHECK(loop.bad_samples() == 1);
  loop.add(batch(5, true), 1, 0);
  loop.add(batch(6), 1, 0);
  loop.ask();
  CHECK(loop.is_last_planned());
  loop.rewind();
  CHECK(loop.is_idle());
  CHECK_FALSE(loop.is_asked());
  CHECK_FALSE(loop.is_last_planned());
  CHECK(loop.planned_steps() == 5);
  CHECK(loop.bad_samples() == 1);  // That of batch 5 is found anew.
  CHECK(loop.progress_now(8).generation == 8);
  CHECK(loop.progress_now(8).bad.size() == 1);
  loop.add(batch(5), 1, 0);
  CHECK(loop.under_way().front().tokens_before == 20);
}

TEST_CASE("a job that had ended has no step left", "[coordination]") {
  JobProgress before;
  before.step = 7;
  CHECK(loop_of(7, before).is_last_planned());
  CHECK(StepLoop().total_steps() == 0);
  CHECK(loop_of(7).total_steps() == 7);
}

}  // namespace
}  // namespace troupe::actors
