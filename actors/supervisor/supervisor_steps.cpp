#include "actors/supervisor/supervisor_steps.hpp"

#include <utility>

#include "actors/supervisor/supervisor_asked_layout.hpp"
#include "actors/supervisor/supervisor_collect.hpp"
#include "actors/supervisor/supervisor_layout.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_speeds.hpp"
#include "actors/supervisor/supervisor_warm_up.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = SupervisorState::Phase;

constexpr std::size_t kStepsAhead = 2;

TokenCount tokens_of(const engine::PlannedBatch& batch) {
  TokenCount tokens = 0;
  for (const auto& sample : batch.iteration.samples) tokens += sample.llm_tokens;
  return tokens;
}

/// What the job is after this step, whose outcome is known. The steps before it have ended.
void note_step(SupervisorState& state, RunningStep& step) {
  const engine::PlannedBatch& batch = *step.batch;
  auto skipped = *state.skipped;
  step.counted = skipped.add(step.ledger.step(), *step.outcome, batch.iteration.trained_tokens,
                             batch.span.size());
  engine::StepNote& note = step.note;
  note.step = step.ledger.step();
  note.step_tokens = tokens_of(batch);
  note.tokens = step.tokens_before + note.step_tokens;
  note.skipped = skipped.counts();
  if (!batch.dealt.empty()) note.deals = {{batch.batch, batch.dealt}};
  note.loss = step.outcome->loss;
  note.auxiliary_losses = step.outcome->auxiliary;
  note.grad_norm = step.outcome->grad_norm;
  note.trained_tokens = batch.iteration.trained_tokens;
  for (const auto& sample : batch.iteration.samples) note.ids.push_back(sample.id);
  for (const auto& dropped : batch.dropped)
    state.untold_bad.push_back({dropped.why.id, batch.batch});
  note.bad = state.untold_bad;
}

/// The step's outcome is known: tells the devices, or closes a step that no device ran.
void decide(Self self, RunningStep& step) {
  auto& state = self->state;
  const auto& iteration = step.batch->iteration;
  const engine::StepPolicy policy{
      state.length->learning_rate(step.batch->batch + 1, step.tokens_before),
      state.resources->setup.job.optimizer.max_grad_norm};
  step.outcome = step.ledger.outcome(iteration.trained_tokens, policy);
  note_step(state, step);
  if (iteration.samples.empty()) return;
  step.waiting_for = all_devices(state.configuration.plan);
  const engine::StepVerdict verdict{step.outcome->decision, step.note};
  for (const NodeId node : state.configuration.plan.nodes())
    send_to_node(self, state.nodes[node.index()], verdict);
  state.untold_bad.clear();
  warmed(state);
}

/// The oldest step is complete: records it, and goes on or ends.
void finish_step(Self self) {
  auto& state = self->state;
  RunningStep step = std::move(state.steps.front());
  state.steps.pop_front();
  if (auto same = compare_hashes(state.configuration.plan, step.reports); !same.ok())
    return fail(self, same.error());
  state.skipped->go_on_from(step.note.skipped);
  state.progress.step = step.note.step;
  state.progress.tokens = step.note.tokens;
  state.progress.deals = step.note.deals;
  const auto record = std::make_shared<const StepRecord>(make_record(state, step, now(self)));
  state.saves.written_ms = 0;
  self->send(state.colleagues.recorder, record);
  self->send(state.colleagues.scheduler, step.batch, record);
  watch_speeds(self, *record);
  state.stalls.ended(now(self) - state.last_finish);
  state.last_finish = now(self);
  if (!step.counted.ok()) return fail(self, step.counted.error());
  replayed(self, record->metrics.step_ms);
  state.step_ms_before = record->metrics.step_ms;
  state.quiet_ms = scheduler::expected_quiet_ms(
      state.node_changes, milliseconds_between(*state.began, state.last_finish));
  state.last_loss = record->metrics.loss;
  save_if_due(self);
  if (state.regrouping) return regroup(self);
  if (state.stopping || state.phase != Phase::training) return;
  if (state.steps.empty() && state.last_planned) {
    drop_asked_layout(self);
    return begin_collecting(self);
  }
  if (!state.steps.empty() && state.steps.front().batch->iteration.samples.empty()) {
    decide(self, state.steps.front());
    return finish_step(self);
  }
  ask_for_plan(self);
}

}  // namespace

void ask_for_plan(Self self) {
  auto& state = self->state;
  if (state.phase != Phase::training || state.last_planned) return;
  if (state.stopping || state.regrouping) return;
  if (is_arriving(state)) {  // Its first step runs in this layout, and no other.
    if (!state.steps.empty() || state.planning) return;
  } else {
    // Who joins or leaves does not wait for a plan that nobody will use.
    if (members_change(state) && (!state.steps.empty() || change_members(self))) return;
    if (state.stopping) return;  // Who wanted to leave may take the job with it.
    if (state.asked_layout && (!state.steps.empty() || take_up_asked_layout(self))) return;
    if (state.planning) return;
    if (state.steps.size() >= kStepsAhead) return;
    while (change_is_due(state))
      if (!state.steps.empty() || change_layout(self)) return;
  }
  state.planning = true;
  self->send(state.colleagues.scheduler, next_atom::value);
}

void start_training(Self self) {
  auto& state = self->state;
  state.phase = Phase::training;
  std::vector<caf::strong_actor_ptr> handles;
  for (const NodeEntry& node : state.nodes) handles.push_back(node.handle);
  self->send(state.colleagues.recorder, begin_atom::value, state.configuration);
  self->send(state.colleagues.scheduler, begin_atom::value, state.configuration, handles,
             state.progress.step);
  state.last_finish = now(self);
  if (!state.began) state.began = state.last_finish;
  if (!state.is_announced && !state.resources->resume.folder.empty())
    self->send(state.colleagues.recorder,
               std::make_shared<const observe::RunEvent>(resumed_event(state)));
  state.is_announced = true;
  if (state.saves.wanted || state.stopping) save_if_due(self);
  if (state.phase != Phase::training) return;
  if (state.last_planned)
    return begin_collecting(self);  // A job that had ended goes on with nothing.
  ask_for_plan(self);
}

void planned(Self self, const PlannedBatchPtr& batch) {
  auto& state = self->state;
  if (state.phase != Phase::training || state.stopping || state.regrouping) return;
  if (batch->iteration.epoch_number != state.configuration.epoch_number) return;
  state.planning = false;
  ++state.planned_steps;
  self->send(state.colleagues.recorder, batch);
  for (const auto& dropped : batch->dropped) state.bad_ids.emplace(dropped.why.id, batch->batch);
  const auto& resources = *state.resources;
  auto checked = engine::check_bad_samples(
      resources.setup.job, static_cast<std::int64_t>(state.bad_ids.size()), resources.data.records);
  if (!checked.ok()) return fail(self, checked.error());
  if (!batch->iteration.samples.empty()) state.newest_batch = batch;
  const bool idle = state.steps.empty();
  RunningStep step{batch,
                   engine::StepLedger(batch->batch + 1, state.configuration.epoch_number,
                                      state.configuration.plan.devices.size()),
                   {},
                   {},
                   state.planned_tokens,
                   idle ? milliseconds_between(state.last_finish, now(self)) : 0,
                   all_devices(state.configuration.plan)};
  state.planned_tokens += tokens_of(*batch);
  state.last_planned = state.length->reached(batch->batch + 1, state.planned_tokens);
  state.steps.push_back(std::move(step));
  if (!batch->iteration.samples.empty())
    for (const NodeId node : state.configuration.plan.nodes())
      send_to_node(self, state.nodes[node.index()],
                   engine::slice_for(batch->iteration, state.configuration.plan, node));
  if (idle && batch->iteration.samples.empty()) {
    decide(self, state.steps.front());
    finish_step(self);
  }
  ask_for_plan(self);
}

void prepared(Self self, const engine::Prepared& report) {
  auto& state = self->state;
  RunningStep* step = find_step(state, report.step);
  if (state.phase != Phase::training || !step || !step->ledger.add(report)) return;
  step->waiting_for.erase(report.device);
  // A job that stops saves what is done; nothing new begins to change it.
  if (step->ledger.complete() && !state.stopping && !state.regrouping) decide(self, *step);
}

void device_finished(Self self, const engine::DeviceReport& report) {
  auto& state = self->state;
  RunningStep* step = find_step(state, report.step);
  if (state.phase != Phase::training || !step) return;
  if (report.epoch_number != state.configuration.epoch_number) return;
  step->reports.push_back(report);
  step->waiting_for.erase(report.device);
  finish_ended_steps(self);
}

void finish_ended_steps(Self self) {
  auto& state = self->state;
  while (!state.steps.empty() && state.phase == Phase::training && state.steps.front().outcome &&
         state.steps.front().waiting_for.empty())
    finish_step(self);
}

}  // namespace troupe::actors
