#include "actors/supervisor/supervisor_steps.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "actors/supervisor/holder_hashes.hpp"
#include "actors/supervisor/supervisor_asked_layout.hpp"
#include "actors/supervisor/supervisor_collect.hpp"
#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_last_save.hpp"
#include "actors/supervisor/supervisor_layout.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_memory.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_refused_batch.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_speeds.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "engine/execution/plan_slices.hpp"
#include "scheduler/recovery/next_layout.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;

void go_on(Self self, Move move);

/// COMMIT or DISCARD: tells the devices, if any has worked on the step.
void decide(Self self, std::int64_t step) {
  auto& state = self->state;
  const auto verdict = state.job.decide(step, state.resources->setup.job.optimizer.max_grad_norm);
  if (!verdict) return;
  for (const NodeId node : state.configuration.plan.nodes()) send_to_node(self, node, *verdict);
}

/// Why nobody's state of this step is saved; empty: `left` is, which those have that agree.
std::string not_to_be_saved(const SupervisorState& state, const Disagreement& found,
                            const StatePlacement& left) {
  if (found.is_open) return "no more than half of the nodes that hold it have the same";
  if (state.job.is_regrouping()) return "another node was lost in the same step";
  if (std::ranges::any_of(left, [](const Shard& shard) { return shard.holders.empty(); }))
    return "those that agree have not all of the model";
  return "";
}

/// Ends the job, once those that agree have saved the step. Who differs saves nothing: its other
/// parameters, and moments, which nobody compares, are as little to be trusted.
void end_by_disagreement(Self self, const Disagreement& found) {
  auto& state = self->state;
  StatePlacement left = state.job.held();
  for (const NodeId node : found.mistrusted) scheduler::drop_holders(left, node);
  const std::string unsaved = not_to_be_saved(state, found, left);
  if (unsaved.empty()) {
    state.job.members.place(std::move(left));
    Error error = found.error;
    error.message += "; what differs is not saved";
    return save_and_fail(self, error);
  }
  state.stopping.unsaved = unsaved;
  if (state.stopping.error) state.resources->logger.warning(to_string(found.error));
  if (!state.stopping.error) state.stopping.error = found.error;
  fail(self, *state.stopping.error);
}

/// The oldest step is complete: records it, and goes on or ends.
void finish_step(Self self) {
  auto& state = self->state;
  const RunningStep step = state.job.loop.finish();
  StepRecord made = make_record(state, step, now(self));
  made.for_next_head = std::exchange(state.for_next_head.due, nullptr);
  const auto record = std::make_shared<const StepRecord>(std::move(made));
  state.saves.written_ms = 0;
  self->send(state.actors.recorder, record);
  self->send(state.actors.scheduler, step.batch, record);
  watch_speeds(self, *record);
  remember(self);
  state.stalls.ended(now(self) - state.last_finish);
  state.last_finish = now(self);
  if (const auto found = find_disagreement(state.configuration.plan, step.reports)) {
    end_by_disagreement(self, *found);
    return go_on(self, state.job.finished());
  }
  if (!step.counted.ok()) {
    save_and_fail(self, step.counted.error());
    return go_on(self, state.job.finished());  // A loss may be dealt with before the save.
  }
  replayed(self, record->metrics);
  state.step_ms_before = record->metrics.step_ms;
  state.samples_per_s_before = samples_per_s(record->metrics);
  state.last_loss = record->metrics.loss;
  save_if_due(self);
  go_on(self, state.job.finished());
}

/// Does what the coordinator says that follows.
void go_on(Self self, Move move) {
  auto& state = self->state;
  switch (move) {
    case Move::regroup: return regroup(self);
    case Move::collect: drop_asked_layout(self); return begin_collecting(self);
    case Move::close_empty:
      decide(self, state.job.loop.under_way().front().votes.step());
      return finish_step(self);
    case Move::finish: return finish_ended_steps(self);
    case Move::look_on: return ask_for_plan(self);
    default: return;
  }
}

}  // namespace

void ask_for_plan(Self self) {
  auto& state = self->state;
  for (;;) {
    const Wishes wishes{state.asked_layout.has_value(), change_is_due(state),
                        state.refusals.due != nullptr};
    switch (state.job.next(wishes)) {
      case Move::change_members:
        if (change_members(self)) return;
        break;
      case Move::asked_layout:
        if (take_up_asked_layout(self)) return;
        break;
      case Move::listed_layout:
        if (change_layout(self)) return;
        break;
      case Move::roomy_layout: return take_up_roomy_layout(self);
      case Move::plan:
        state.job.loop.ask();
        self->send(state.actors.scheduler, next_atom::value);
        return;
      default: return;
    }
  }
}

void start_training(Self self) {
  auto& state = self->state;
  state.job.train();
  std::vector<caf::strong_actor_ptr> handles;
  for (const NodeLink& link : state.links) handles.push_back(link.handle);
  tell_speeds(self);
  self->send(state.actors.recorder, begin_atom::value, state.configuration);
  self->send(state.actors.scheduler, begin_atom::value, state.configuration, handles,
             state.job.loop.progress().step);
  state.last_finish = now(self);
  state.stalls.begun();
  if (!state.began) state.began = state.last_finish;
  if (!state.is_announced && !state.resources->resume.folder.empty())
    self->send(state.actors.recorder,
               std::make_shared<const observe::RunEvent>(resumed_event(state)));
  state.is_announced = true;
  if (state.saves.wanted || state.job.is_stopping()) save_if_due(self);
  go_on(self, state.job.started());
}

void planned(Self self, const PlannedBatchPtr& batch) {
  auto& state = self->state;
  const bool idle = state.job.loop.is_idle();
  if (!state.job.planned(batch, idle ? milliseconds_between(state.last_finish, now(self)) : 0))
    return;
  self->send(state.actors.recorder, batch);
  const auto& resources = *state.resources;
  auto checked = engine::check_bad_samples(resources.setup.job, state.job.loop.bad_samples(),
                                           resources.data.records);
  if (!checked.ok()) return save_and_fail(self, checked.error());
  const bool is_empty = batch->iteration.samples.empty();
  if (!is_empty) {
    state.newest_batch = batch;
    const engine::PlanSlices slices(batch->iteration, state.configuration.plan);
    for (const NodeId node : state.configuration.plan.nodes())
      send_to_node(self, node, slices.of(node));
  }
  if (idle && is_empty) go_on(self, Move::close_empty);
  ask_for_plan(self);
}

void not_planned(Self self, EpochNumber epoch_number, const Error& error) {
  const Coordinator& job = self->state.job;
  if (epoch_number == job.members.generation() && !job.is_regrouping()) head_failed(self, error);
}

void prepared(Self self, const engine::Prepared& report) {
  if (self->state.job.prepared(report)) decide(self, report.step);
}

void device_finished(Self self, const engine::DeviceReport& report) {
  if (self->state.job.device_finished(report)) finish_ended_steps(self);
}

void finish_ended_steps(Self self) {
  while (self->state.job.has_ended_step()) finish_step(self);
}

}  // namespace troupe::actors
