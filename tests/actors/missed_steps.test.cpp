#include "tests/torch_catch.hpp"

#include "actors/supervisor/missed_steps.hpp"

namespace troupe::actors {
namespace {

/// Step 3 was finished, 4 and 5 ran on no device, 6 was left out and 7 finished.
Gathered gathered() {
  Gathered job;
  job.epoch_number = 2;
  const auto add = [&](std::int64_t step, bool commit, std::int64_t skipped) {
    engine::StepVerdict word;
    word.decision = {step, commit, 1, 0.5, commit ? "" : "the loss is not finite"};
    word.note.step = step;
    word.note.loss = static_cast<double>(step);
    word.note.skipped.count = skipped;
    word.note.ids = {"s" + std::to_string(step)};
    job.verdicts.push_back(word);
  };
  add(3, true, 1);
  add(6, false, 4);
  add(7, true, 4);
  job.progress.step = 7;
  job.progress.bad = {{"a", 1}, {"b", 3}, {"c", 4}};
  return job;
}

std::vector<std::int64_t> steps_of(const std::vector<StepRecord>& records) {
  std::vector<std::int64_t> steps;
  for (const auto& record : records) steps.push_back(record.metrics.step);
  return steps;
}

TEST_CASE("steps that were missed are written once each", "[actors][takeover]") {
  const auto records = missed_steps(gathered(), 3);
  REQUIRE((steps_of(records) == std::vector<std::int64_t>{4, 5, 6, 7}));
  CHECK(records[0].metrics.skipped == "no trained tokens in the batch");
  CHECK(records[0].metrics.skipped_steps == 2);
  CHECK(records[1].metrics.skipped_steps == 3);
  CHECK(records[2].metrics.skipped_steps == 4);
  CHECK(records[2].metrics.skipped == "the loss is not finite");
  CHECK(records[2].ids.empty());
  CHECK(records[3].metrics.loss == 7);
  CHECK((records[3].ids == std::vector<std::string>{"s7"}));
  CHECK(missed_steps(gathered(), 7).empty());
}

TEST_CASE("missed steps count the bad samples that were known then", "[actors][takeover]") {
  const auto records = missed_steps(gathered(), 2);
  REQUIRE((steps_of(records) == std::vector<std::int64_t>{3, 4, 5, 6, 7}));
  CHECK(records[0].metrics.bad_samples == 1);
  CHECK(records[1].metrics.bad_samples == 2);
  CHECK(records[2].metrics.bad_samples == 3);
}

TEST_CASE("what is older than all that nodes kept is not made up", "[actors][takeover]") {
  Gathered job = gathered();
  for (std::int64_t step = 8; step < 21; ++step) {
    engine::StepVerdict word = job.verdicts.back();
    word.decision.step = word.note.step = step;
    job.verdicts.push_back(word);
  }
  REQUIRE(job.verdicts.size() == kVerdictsKept);
  const auto records = missed_steps(job, 0);
  CHECK(records.front().metrics.step == 3);
  CHECK(records.size() == 18);
}

}  // namespace
}  // namespace troupe::actors
