#include "actors/supervisor/missed_steps.hpp"

#include <algorithm>
#include <utility>

#include "engine/iteration/prepared_votes.hpp"

namespace troupe::actors {

namespace {

std::int64_t bad_samples_until(const Gathered& gathered, std::int64_t step) {
  const auto& bad = gathered.progress.bad;
  return std::count_if(bad.begin(), bad.end(),
                       [step](const BadSampleNote& sample) { return sample.batch < step; });
}

StepRecord record_of(const Gathered& gathered, const engine::Decision& decision) {
  StepRecord record;
  observe::StepMetrics& metrics = record.metrics;
  metrics.step = decision.step;
  metrics.lr = decision.learning_rate;
  metrics.skipped = decision.reason;
  metrics.nodes = static_cast<std::int32_t>(gathered.plan.nodes().size());
  metrics.epoch_number = gathered.epoch_number;
  metrics.bad_samples = bad_samples_until(gathered, metrics.step);
  return record;
}

StepRecord record_of(const Gathered& gathered, const engine::StepVerdict& verdict) {
  StepRecord record = record_of(gathered, verdict.decision);
  const engine::StepNote& note = verdict.note;
  observe::StepMetrics& metrics = record.metrics;
  metrics.loss = note.loss;
  metrics.auxiliary_losses = note.auxiliary_losses;
  metrics.grad_norm = note.grad_norm;
  metrics.samples = std::ssize(note.ids);
  metrics.tokens = note.step_tokens;
  metrics.trained_tokens = note.trained_tokens;
  metrics.skipped_steps = note.skipped.count;
  if (verdict.decision.commit) record.ids = note.ids;
  return record;
}

/// `skipped`: steps that left the parameters alone, up to this one.
StepRecord record_of_none(const Gathered& gathered, std::int64_t step, std::int64_t skipped,
                          double learning_rate) {
  const auto outcome = engine::PreparedVotes(step, gathered.epoch_number, 0)
                           .outcome(/*trained_tokens=*/0, {learning_rate, 0});
  StepRecord record = record_of(gathered, outcome.decision);
  record.metrics.loss = outcome.loss;
  record.metrics.grad_norm = outcome.grad_norm;
  record.metrics.skipped_steps = skipped;
  return record;
}

}  // namespace

std::vector<StepRecord> missed_steps(const Gathered& gathered, std::int64_t recorded_step) {
  std::vector<StepRecord> records;
  std::int64_t last = recorded_step;
  for (const engine::StepVerdict& verdict : gathered.verdicts) {
    const engine::StepNote& note = verdict.note;
    if (note.step <= recorded_step) continue;
    // Of steps before the oldest that is kept nobody knows whether a device ran them.
    const bool is_known =
        last >= gathered.verdicts.front().note.step || gathered.verdicts.size() < kVerdictsKept;
    const std::int64_t skipped = note.skipped.count - (verdict.decision.commit ? 0 : 1);
    for (std::int64_t step = last + 1; is_known && step < note.step; ++step)
      records.push_back(record_of_none(gathered, step, skipped - (note.step - 1 - step),
                                       verdict.decision.learning_rate));
    records.push_back(record_of(gathered, verdict));
    last = note.step;
  }
  return records;
}

}  // namespace troupe::actors
