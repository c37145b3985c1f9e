#include "actors/supervisor/supervisor_end.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "actors/link/system.hpp"
#include "actors/supervisor/supervisor_collect.hpp"
#include "actors/supervisor/supervisor_gather.hpp"
#include "actors/supervisor/supervisor_last_save.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_processes.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_recovery.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_state.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = JobPhase;
using NodePhase = Member::Phase;

/// Time for the better reason: a process that ended says more than its lost connection, and both
/// say more than the peers that missed it.
constexpr auto kReasonTimeout = std::chrono::milliseconds(300);

std::string end_text(const Membership& members, NodeId node) {
  const std::string& how = members[node].how_ended;
  return how.empty() ? "the connection to it was lost" : how;
}

std::string loss_text(const Membership& members, NodeId node) {
  return describe(members, node) + " was lost: " + end_text(members, node);
}

bool has_device(const RunningStep& step, const ParallelPlan& plan, NodeId node) {
  return std::any_of(step.waiting_for.begin(), step.waiting_for.end(),
                     [&](DeviceId device) { return plan.devices[device.index()].node == node; });
}

/// Samples that a node's stages compute in a step.
std::set<std::string> samples_at(const IterationPlan& iteration, const ParallelPlan& plan,
                                 NodeId node) {
  std::set<std::string> ids;
  // Where all samples were bad there are no lists.
  for (std::size_t device = 0; device < iteration.actions.size(); ++device) {
    if (plan.devices[device].node != node) continue;
    for (const Action& action : iteration.actions[device])
      if (action.kind == ActionKind::forward)
        for (const std::int32_t unit :
             samples_of(plan, iteration, action.stage, action.microbatch, action.part))
          ids.insert(iteration.sample(unit).id);
  }
  return ids;
}

/// Layers of a node's stages.
std::set<LayerId> layers_at(const ParallelPlan& plan, NodeId node) {
  std::set<LayerId> layers;
  for (const Stage& stage : plan.stages) {
    if (plan.devices[stage.devices.front().index()].node != node) continue;
    for (const LayerRun& run : stage.runs)
      for (std::int32_t layer = run.layers.begin; layer < run.layers.end; ++layer)
        layers.insert({run.module, layer});
  }
  return layers;
}

/// The loss of a node in the step that it runs; none: it runs none, waits for the word on it, or
/// has no samples there, so that no step is to blame.
std::optional<StepFailure> failure_at(const SupervisorState& state, NodeId node, FailureKind kind) {
  if (state.job.phase() != Phase::training || !state.job.bears_losses()) return std::nullopt;
  const ParallelPlan& plan = state.configuration.plan;
  for (const RunningStep& step : state.job.loop.under_way()) {
    const bool is_at_it = has_device(step, plan, node);
    if (step.outcome && !is_at_it) continue;  // It is done with it, and runs the next one.
    if (step.outcome || !is_at_it) return std::nullopt;
    StepFailure failure{kind, step.votes.step(), state.job.members.generation(), node};
    failure.who = describe(state.job.members, node);
    failure.said = end_text(state.job.members, node);
    failure.samples = samples_at(step.batch->iteration, plan, node);
    failure.layers = layers_at(plan, node);
    if (failure.samples.empty()) return std::nullopt;
    return failure;
  }
  return std::nullopt;
}

/// Ends the job where this node is one of those that the same step ends. Returns whether it does.
bool ends_by_its_step(Self self, NodeId node, FailureKind kind) {
  auto& state = self->state;
  auto failure = failure_at(state, node, kind);
  if (!failure) return false;
  const auto again = state.failures.add(std::move(*failure));
  if (!again) return false;
  save_and_fail_without(self, node, loss_text(state.job.members, node), *again);
  state.job.members.gone(node);
  return true;
}

/// Whether a device of this node has half of an update, or of a layout, if it fails now.
bool is_changing(const SupervisorState& state, NodeId node) {
  const StepLoop& loop = state.job.loop;
  return state.job.phase() == Phase::applying ||
         (loop.is_decided() &&
          has_device(loop.under_way().front(), state.configuration.plan, node));
}

/// Where the same losses come again and again, somebody has to look.
constexpr std::int32_t kMostTries = 3;

/// Whether it says nothing against the job itself: on other machines, or later, it goes on.
bool is_of_machines(const Error& error) {
  return error.code == Errc::transport_failed || error.code == Errc::timed_out;
}

}  // namespace

std::int32_t next_try(const SupervisorState& state) {
  const HeadResources& resources = *state.resources;
  if (!resources.setup.job.recovery.from_checkpoint || !state.job.is_at_work() ||
      (state.job.is_stopping() && !state.stopping.begins_again))
    return 0;
  const bool is_same = resources.resume.progress.step == state.saves.last_step;
  const std::int32_t next = is_same ? resources.tries + 1 : 1;
  return next <= kMostTries ? next : 0;
}

void finish_if_all_gone(Self self, bool at_once) {
  auto& state = self->state;
  if (state.job.phase() != Phase::ending) return;
  const bool done = state.recorded && std::none_of(state.job.members.all().begin(),
                                                   state.job.members.all().end(), is_there);
  if (!done && !at_once && now(self) < state.deadline) return;
  state.job.ended();
  for (std::size_t i = 0; i < state.job.members.size(); ++i)
    if (const Member& node = state.job.members[NodeId{i}];
        node.phase != NodePhase::gone || node.is_silent)
      state.how.left.push_back(NodeId{i});
  if (state.actors.scheduler)
    self->send_exit(state.actors.scheduler, caf::exit_reason::user_shutdown);
  if (state.actors.keeper) self->send_exit(state.actors.keeper, caf::exit_reason::user_shutdown);
  if (state.actors.recorder)
    self->send_exit(state.actors.recorder, caf::exit_reason::user_shutdown);
  if (auto on_end = std::exchange(state.resources->on_end, nullptr)) on_end(state.how);
  self->quit();
}

void end(Self self, JobEnd how) {
  auto& state = self->state;
  if (state.job.is_over()) return;
  tell_of_losses(self);
  if (state.gathering)  // They wait for another head, with their state.
    for (std::size_t i = 0; i < state.job.members.size(); ++i) state.job.members.gone(NodeId{i});
  state.job.end();
  state.how = std::move(how);
  state.deadline = now(self) + seconds(state.resources->setup.job.cluster.stop_timeout_s);
  if (state.job.is_stopping()) state.deadline = std::min(state.deadline, state.stopping.until);
  // What only this machine knows of, a signal, say, is to others that the job failed.
  const bool is_theirs = state.how.exit_code == 0 || state.how.exit_code == kResumable;
  const std::int32_t code = is_theirs ? state.how.exit_code : 1;
  if (state.how.again > 0)
    send_to_nodes(self, begin_atom::value, state.how.message);
  else
    send_to_nodes(self, stop_atom::value, state.how.message, code);
  const auto recorded = [self] {
    self->state.recorded = true;
    finish_if_all_gone(self);
  };
  if (!state.actors.recorder) return recorded();
  self->request(state.actors.recorder, caf::infinite, finish_atom::value)
      .then([recorded](finish_atom) { recorded(); }, [recorded](const caf::error&) { recorded(); });
}

void fail(Self self, const Error& error) {
  // Who is lost or late may be back, a disk may have room again, and nothing of the job is wrong.
  // One that never took a step is no such disk: who requeues the job would do so for ever.
  const bool trained =
      self->state.job.phase() == Phase::collecting ||
      self->state.job.loop.progress().step > self->state.resources->resume.progress.step;
  const bool is_disk = error.code == Errc::io_failed && trained;
  const bool is_outer = is_disk || is_of_machines(error);
  if (!is_outer || self->state.saves.last_step == 0) {
    Error told = error;
    if (self->state.stopping.error) told.message += "; " + what_is_saved(self->state);
    const bool is_kept = is_outer && !self->state.stopping.part.empty();
    return end(self, {is_kept ? kResumable : exit_code(told), to_string(told)});
  }
  // By itself no disk gets room.
  const std::int32_t again = is_disk ? 0 : next_try(self->state);
  Error resumable = error;
  const std::string& part = self->state.stopping.part;
  resumable.message += part.empty() ? "" : "; " + part;
  resumable.fix = how_to_go_on(self->state, again > 0 ? GoesOn::by_itself : GoesOn::same_command);
  end(self, {kResumable, to_string(resumable), false, {}, again});
}

bool would_begin_again(const SupervisorState& state, const Error& error) {
  return is_of_machines(error) && state.saves.last_step > 0 && next_try(state) > 0;
}

void stop(Self self, std::int32_t signal) {
  auto& state = self->state;
  state.stopping.begins_again = false;
  if (++state.signals > 1) {
    if (state.job.phase() == Phase::ending) finish_if_all_gone(self, true);
    if (state.job.is_stopping()) end_stopped(self);
    return;
  }
  if (!state.job.is_stopping()) begin_stop(self, "stopped by " + signal_name(signal), 128 + signal);
}

void node_lost(Self self, NodeId id, FailureKind kind) {
  auto& state = self->state;
  const Member& node = state.job.members[id];
  switch (state.job.kind_of_loss(id)) {
    case LossKind::none: return;
    case LossKind::leaver: state.job.members.gone(id); return finish_if_all_gone(self);
    case LossKind::gathered: return gathered_lost(self, id);
    case LossKind::newcomer:
      return newcomer_lost(
          self, id, node.how_ended.empty() ? "the connection to it was lost" : node.how_ended);
    case LossKind::member: break;
  }
  if (ends_by_its_step(self, id, kind)) return;
  const std::string what = loss_text(state.job.members, id);
  if (state.job.phase() == Phase::joining && !state.job.is_stopping() && !is_own_place(state, id)) {
    state.resources->logger.warning(what + " before the job began; its place is free");
    return forget_node(self, id, what);
  }
  if (state.job.is_stopping()) return lose_while_stopping(self, id, what);
  std::string hindrance;
  if (!is_collected(state)) {
    auto hindered = go_on_without(self, id, what);
    if (!hindered) return;
    hindrance = *std::move(hindered);
  }
  state.job.members.gone(id);
  const std::string after =
      state.job.loop.is_idle()
          ? ""
          : "; step " + std::to_string(state.job.loop.under_way().front().votes.step()) +
                " was not finished";
  const std::string fix = node.is_silent
                              ? "look whether its machine is stopped, crowded or cut off, "
                                "then start the job again"
                              : "start the job again";
  const Error error{Errc::transport_failed, what + after + hindrance, {}, fix};
  if (!is_collected(state)) return fail(self, error);
  do_without_holder(self, id, what);
  state.resources->logger.warning(what + " while the model was collected");
  state.lost_while_collected.push_back({id, node.since, error});
}

void expect_reason(Self self, const Error& error) {
  self->delayed_send(self, 2 * kReasonTimeout, failed_atom::value,
                     self->state.job.members.generation(), error);
}

void node_failed(Self self, NodeId id, Error& error, bool is_intact) {
  const std::string who = describe(self->state.job.members, id);
  error.where = who + (error.where.empty() ? "" : ", " + error.where);
  auto& state = self->state;
  if (state.gathering) return gathered_failed(self, id, error);
  // The first reason stands; what is left to do has an end.
  if (state.job.is_stopping() && state.stopping.error) return;
  if (error.code == Errc::cancelled) {  // A signal to its process.
    if (state.job.is_stopping() || state.job.phase() == Phase::ending) return;
    if (state.job.phase() == Phase::joining && is_own_place(state, id))
      return begin_stop(self, error.message + " at " + who, exit_code(error));
    return node_told_to_end(self, id, error.message);
  }
  if (!state.job.members.takes_part(id) && state.job.phase() != Phase::joining) {
    if (state.job.members.is_there(id)) newcomer_lost(self, id, error.message);
    return;
  }
  if (error.code == Errc::transport_failed) return expect_reason(self, error);
  if (is_intact) return save_and_fail(self, error);
  save_and_fail_without(self, id, who + " is done without: " + error.message, error);
  state.job.members.fell_silent(id);  // Its process is still there, and was told to end.
}

void device_failed(Self self, NodeId id, Error& error) {
  node_failed(self, id, error, !is_changing(self->state, id));
}

void head_failed(Self self, const Error& error) {
  auto& state = self->state;
  // Only receives of the recorder fail so. Whoever was lost with them is done without already: what
  // they were for is asked for anew, or saved where it lies.
  const bool is_late = is_of_machines(error) && state.job.phase() != Phase::collecting &&
                       state.job.loop.is_last_planned();
  if (is_late) return;
  // Of a batch without a plan, or of a run folder whose disk fails: checkpoints may lie on another
  // one. After any other trouble of these actors nothing can be saved without them.
  const bool is_plan = error.code == Errc::infeasible || error.code == Errc::bad_data;
  const bool may_save = is_plan || error.code == Errc::io_failed;
  if (state.job.phase() == Phase::collecting) state.uncollected = state.job.members.generation();
  if (!state.lost_while_collected.empty() && error.code != Errc::io_failed)
    return collect_without_lost(self);
  // Whose tensors did not come, or why, shows in a moment, and all that nodes have can be saved.
  if (is_with_recorder(state) && is_of_machines(error)) return expect_reason(self, error);
  if (!may_save) return fail(self, error);
  save_and_fail(self, error);
}

void work_failed(Self self, NodeId id, const engine::FailedWork& failed) {
  auto& state = self->state;
  if (failed.epoch_number != state.job.members.generation()) return;
  // While a loss is dealt with in the layout that it hit, calls fail by it, or wait for who gave
  // the step up: whose NCCL is to blame shows in the next one.
  const bool is_call = failed.by_device && is_of_machines(failed.error);
  if (is_call && state.job.is_regrouping() && state.job.phase() == Phase::training) return;
  // What connects it has lost somebody: mostly a node, which shows by itself, and then a later
  // generation begins. Where none does, NCCL failed here.
  if (failed.by_device && failed.error.code == Errc::transport_failed) {
    engine::FailedWork unexplained = failed;
    unexplained.error.code = Errc::timed_out;
    self->delayed_send(self, 3 * kReasonTimeout, id, unexplained);
    return;
  }
  Error error = failed.error;
  // An exception leaves the node's state as it is. A device that fails, or hangs, saves nothing.
  const bool may_save =
      !failed.by_device && error.code != Errc::timed_out && !is_changing(state, id);
  const bool is_broken = failed.by_device && !is_call;
  if (is_broken && state.job.is_stopping() && state.job.is_at_work() &&
      state.job.members.takes_part(id))
    return device_lost(self, id, error);
  if (state.gathering || !state.job.members.takes_part(id) || !state.job.bears_losses())
    return node_failed(self, id, error, may_save);
  const std::string who = describe(state.job.members, id);
  StepFailure failure{failed.by_device ? FailureKind::device : FailureKind::thrown, failed.step,
                      failed.epoch_number, id};
  failure.who = who;
  failure.said = error.message;
  failure.samples = {failed.samples.begin(), failed.samples.end()};
  failure.layers = layers_at(state.configuration.plan, id);
  failure.thrown = failed.thrown;
  // Of what a device does beside its stages all of its samples are in question.
  if (const auto whole = failed.by_device && failure.samples.empty()
                             ? failure_at(state, id, FailureKind::device)
                             : std::nullopt)
    failure.samples = whole->samples;
  const std::string what = who + " was lost: " + error.message;
  // Of a layout that comes up no step is to blame.
  if (const auto again = failed.step > 0 ? state.failures.add(std::move(failure)) : std::nullopt) {
    if (may_save) return save_and_fail(self, *again);
    save_and_fail_without(self, id, what, *again);
    return state.job.members.fell_silent(id);
  }
  if (recover(self, id, what).ok())
    return state.job.members.fell_silent(id);  // Its process is still there, and was told to end.
  if (failed.by_device) return device_lost(self, id, error);
  node_failed(self, id, error, may_save);
}

void connection_lost(Self self, const caf::actor_addr& source) {
  auto& state = self->state;
  for (std::size_t i = 0; i < state.job.members.size(); ++i) {
    const NodeId id{i};
    const auto& handle = state.links[i].handle;
    if (!handle || caf::actor_cast<caf::actor_addr>(handle) != source) continue;
    if (state.job.members[id].phase == NodePhase::gone) return;
    if (state.job.phase() == Phase::ending || state.gathering) return node_lost(self, id);
    if (ends_by_its_step(self, id, FailureKind::unexplained)) return;
    if (state.job.members.takes_part(id) && !is_collected(state) &&
        recover(self, id, loss_text(state.job.members, id)).ok())
      return;
    self->delayed_send(self, kReasonTimeout, lost_atom::value, id, state.job.members[id].pid);
    return;
  }
}

}  // namespace troupe::actors
