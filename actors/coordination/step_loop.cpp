#include "actors/coordination/step_loop.hpp"

#include <cassert>
#include <utility>

namespace troupe::actors {

namespace {

TokenCount tokens_of(const engine::PlannedBatch& batch) {
  TokenCount tokens = 0;
  for (const auto& sample : batch.iteration.samples) tokens += sample.llm_tokens;
  return tokens;
}

std::set<DeviceId> first_devices(std::size_t count) {
  std::set<DeviceId> devices;
  for (std::size_t i = 0; i < count; ++i) devices.insert(DeviceId{i});
  return devices;
}

}  // namespace

StepLoop::StepLoop(JobProgress before, engine::TrainingLength length, engine::SkippedSteps skipped)
    : progress_(std::move(before)), length_(std::move(length)), skipped_(std::move(skipped)) {
  for (const auto& [id, batch] : std::exchange(progress_.bad, {})) bad_ids_.emplace(id, batch);
  planned_tokens_ = progress_.tokens;
  is_last_planned_ = progress_.step > 0 && length_->reached(progress_.step, progress_.tokens);
}

JobProgress StepLoop::progress_now(EpochNumber generation) const {
  JobProgress progress = progress_;
  progress.generation = generation;
  progress.skipped = skipped_->counts();
  for (const auto& [id, batch] : bad_ids_)
    if (batch < progress.step) progress.bad.push_back({id, batch});
  return progress;
}

void StepLoop::add(std::shared_ptr<const engine::PlannedBatch> batch, std::size_t device_count,
                   double wait_ms) {
  is_asked_ = false;
  for (const auto& dropped : batch->dropped) bad_ids_.emplace(dropped.why.id, batch->batch);
  RunningStep step{
      batch,
      engine::PreparedVotes(batch->batch + 1, batch->iteration.epoch_number, device_count),
      device_count,
      {},
      {},
      planned_tokens_,
      wait_ms,
      first_devices(device_count)};
  planned_tokens_ += tokens_of(*batch);
  is_last_planned_ = length_->reached(batch->batch + 1, planned_tokens_);
  steps_.push_back(std::move(step));
}

bool StepLoop::prepared(const engine::Prepared& report) {
  RunningStep* step = find(report.step);
  if (!step || !step->votes.add(report)) return false;
  step->waiting_for.erase(report.device);
  return step->votes.complete();
}

std::optional<engine::StepVerdict> StepLoop::decide(std::int64_t number, double max_grad_norm) {
  RunningStep& step = *find(number);
  assert(step.is_empty() || step.votes.complete());
  const engine::StepPolicy policy{length_->learning_rate(number, step.tokens_before),
                                  max_grad_norm};
  step.outcome = step.votes.outcome(step.batch->iteration.trained_tokens, policy);
  note(step);
  if (step.is_empty()) return std::nullopt;
  step.waiting_for = first_devices(step.device_count);
  untold_bad_.clear();  // The devices hear of them now.
  return engine::StepVerdict{step.outcome->decision, step.note};
}

/// What the job is after this step, whose outcome is known. The steps before it have ended.
void StepLoop::note(RunningStep& step) {
  const engine::PlannedBatch& batch = *step.batch;
  auto skipped = *skipped_;
  step.counted = skipped.add(step.votes.step(), *step.outcome, batch.iteration.trained_tokens,
                             batch.span.size());
  engine::StepNote& note = step.note;
  note.step = step.votes.step();
  note.step_tokens = tokens_of(batch);
  note.tokens = step.tokens_before + note.step_tokens;
  note.skipped = skipped.counts();
  if (!batch.dealt.empty()) note.deals = {{batch.batch, batch.dealt}};
  note.loss = step.outcome->loss;
  note.auxiliary_losses = step.outcome->auxiliary;
  note.grad_norm = step.outcome->grad_norm;
  note.trained_tokens = batch.iteration.trained_tokens;
  for (const auto& sample : batch.iteration.samples) note.ids.push_back(sample.id);
  for (const auto& dropped : batch.dropped) untold_bad_.push_back({dropped.why.id, batch.batch});
  note.bad = untold_bad_;
}

bool StepLoop::device_finished(const engine::DeviceReport& report) {
  RunningStep* step = find(report.step);
  if (!step || report.epoch_number != step->batch->iteration.epoch_number) return false;
  step->reports.push_back(report);
  step->waiting_for.erase(report.device);
  return true;
}

void StepLoop::without(const std::set<DeviceId>& devices) {
  for (RunningStep& step : steps_)
    std::erase_if(step.waiting_for, [&](DeviceId device) { return devices.contains(device); });
}

bool StepLoop::is_ended() const { return is_decided() && steps_.front().waiting_for.empty(); }

RunningStep StepLoop::finish() {
  assert(is_decided());
  RunningStep step = std::move(steps_.front());
  steps_.pop_front();
  skipped_->go_on_from(step.note.skipped);
  progress_.step = step.note.step;
  progress_.tokens = step.note.tokens;
  progress_.deals = step.note.deals;
  return step;
}

void StepLoop::rewind() {
  steps_.clear();
  is_asked_ = false;
  planned_tokens_ = progress_.tokens;
  is_last_planned_ = length_->reached(progress_.step, progress_.tokens);
  std::erase_if(bad_ids_, [&](const auto& bad) { return bad.second >= progress_.step; });
}

RunningStep* StepLoop::find(std::int64_t number) {
  for (RunningStep& step : steps_)
    if (step.votes.step() == number) return &step;
  return nullptr;
}

}  // namespace troupe::actors
