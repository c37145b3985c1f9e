#include "actors/supervisor/supervisor_save.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "actors/supervisor/saved_parts.hpp"
#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "engine/profiling/profile_check.hpp"
#include "engine/setup/save_policy.hpp"
#include "runtime/state/checkpoint.hpp"
#include "runtime/state/checkpoint_keeping.hpp"
#include "scheduler/layout/layout_request.hpp"
#include "scheduler/state/save_plan.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = JobPhase;

/// Of the time to stop, what saving may take; the rest is for the nodes to end.
constexpr double kShareOfStop = 0.75;

constexpr std::size_t kFailedKept = 16;

/// What lines may take to come to disk: a run folder that hangs keeps no checkpoint elsewhere.
constexpr std::chrono::seconds kRecordTime{3};

std::string step_text(std::int64_t step) { return "step " + std::to_string(step); }

void begin_save(Self self);

/// The save has come to its end, well or not.
void save_ended(Self self) {
  auto& state = self->state;
  state.saves.running.reset();
  if (state.job.is_stopping()) return go_on_stopping(self);
  if (state.job.is_at_rest() && state.saves.last_step == state.job.loop.progress().step)
    state.saves.wanted = false;
  if (state.saves.wanted && state.job.is_at_rest()) begin_save(self);
  if (state.saves.ends_job && !saves_at_end(state)) end(self, {0, ""});
}

void save_failed(Self self, Error error) {
  auto& state = self->state;
  const Save& save = *state.saves.running;
  self->send(state.actors.keeper, stop_atom::value, save.partial.string());
  state.saves.failed[save.number] = save;
  if (state.saves.failed.size() > kFailedKept) state.saves.failed.erase(state.saves.failed.begin());
  if (state.job.is_stopping())
    state.stopping.unsaved = (error.where.empty() ? "" : error.where + ": ") + error.message;
  state.resources->logger.warning(
      "no checkpoint of " + step_text(save.progress.step) + ": " + to_string(error) +
      (state.job.is_stopping()
           ? ""
           : "\ntraining goes on" + std::string(state.saves.last_step > 0
                                                    ? "; the newest checkpoint is that of " +
                                                          step_text(state.saves.last_step)
                                                    : "")));
  save_ended(self);
}

/// The keeper completes it once everything for its manifest has come, and lines of its steps are on
/// disk, on which counts what goes on from it.
void complete_if_written(Self self) {
  auto& state = self->state;
  auto& running = state.saves.running;
  if (!running->is_learned || !running->is_recorded ||
      running->shares.size() < running->writers.size())
    return;
  running->is_written = true;
  self->send(state.actors.keeper,
             std::make_shared<const WrittenCheckpoint>(
                 WrittenCheckpoint{running->number, running->partial, name_of(state, *running),
                                   manifest_of(state, *running), state.resources->resolved_job,
                                   state.stopping.error.has_value() || !running->missing.empty()}));
}

void begin_save(Self self) {
  auto& state = self->state;
  const Dtype dtype = state.resources->setup.job.train.dtype;
  Saves& saves = state.saves;
  saves.wanted = false;
  // Who had a last copy was lost while the model was collected, which may be at the head by now: no
  // part of it is saved beside that.
  if (const auto held = check_holders(state, state.job.left());
      !held.ok() && !state.job.is_stopping())
    return state.resources->logger.warning("no checkpoint of " +
                                           step_text(state.job.loop.progress().step) + ": " +
                                           held.error().message);
  saves.last_begun = now(self);
  Save save;
  save.number = ++saves.number;
  save.progress = state.job.loop.progress_now(state.job.members.generation());
  save.partial = state::partial_folder(folder_of(state), save.progress.step, save.number);
  save.writers = scheduler::plan_save(state.job.members.placed(), dtype);
  save.missing = missing_shards(state);
  save.begun = now(self);
  const bool is_last =
      state.job.is_stopping() || (state.job.loop.is_last_planned() && state.job.loop.is_idle());
  for (std::size_t i = 0; i < state.job.members.size(); ++i) {
    SaveOrder order{save.number,
                    save.progress.step,
                    save.partial.string(),
                    {},
                    is_last,
                    state.stopping.error.has_value() || state.job.is_halted()};
    for (const auto& [device, keys] : save.writers)
      for (const ShardKey& key : keys)
        if (device.node == NodeId{i}) order.shards.push_back({key, {device}});
    send_to_node(self, NodeId{i}, std::move(order));
  }
  // It has heard of the step's end before, and of no later one.
  self->send(state.actors.scheduler, save_atom::value, save.number);
  // The recorder has heard of it too, and of nothing that it takes longer for.
  const auto recorded = [self, number = save.number] {
    auto& running = self->state.saves.running;
    if (!running || running->number != number) return;
    running->is_recorded = true;
    complete_if_written(self);
  };
  saves.running = std::move(save);
  self->request(state.actors.recorder, kRecordTime, save_atom::value)
      .then([recorded](save_atom) { recorded(); }, [recorded](const caf::error&) { recorded(); });
}

observe::RunEvent saved_event(const SupervisorState& state, const Save& save, Time now) {
  observe::RunEvent event;
  event.time = engine::utc_now();
  event.step = save.progress.step + 1;
  event.generation = state.job.members.generation();
  event.kind = "checkpoint";
  event.why = "state of " + step_text(save.progress.step);
  for (const auto& [device, share] : save.shares) {
    event.copy_ms = std::max(event.copy_ms, share.copy_ms);
    event.copy_bytes += share.bytes;
  }
  event.rebuild_ms = milliseconds_between(save.begun, now) - event.copy_ms;
  event.tolerance_left = state.job.members.losses_borne();
  return event;
}

/// Says once what a stop of this job is too short for.
void check_stop_time(Self self, double saving_ms) {
  auto& state = self->state;
  const double stop_s = state.resources->setup.job.cluster.stop_timeout_s;
  if (saving_ms <= 1000 * kShareOfStop * stop_s ||
      std::exchange(state.saves.is_stop_called_short, true))
    return;
  const auto whole = [](double seconds) { return std::to_string(std::lround(seconds)); };
  state.resources->logger.warning(
      "saving takes " + whole(saving_ms / 1000) + " s, and a job that is told to stop has " +
      whole(stop_s) +
      " s: it may lose what followed the newest checkpoint; raise cluster.stop_timeout_s to " +
      whole(std::ceil(2 * saving_ms / 1000 / kShareOfStop)) + ", and what gives the job notice");
}

/// A checkpoint is complete.
void note_saved(Self self, const Save& save, const KeptCheckpoint& kept) {
  auto& state = self->state;
  Saves& saves = state.saves;
  if (!save.missing.empty())
    return note_part_saved(self, save, saved_event(state, save, now(self)));
  const std::int64_t step = save.progress.step;
  if (step > saves.last_step) {
    saves.last_step = step;
    saves.last_updates = updates_in(save.progress);
  }
  saves.written_ms = milliseconds_between(save.begun, now(self));
  const auto event = saved_event(state, save, now(self));
  state.resources->logger.info(
      step_text(step) + " saved: " + scheduler::byte_text(static_cast<double>(event.copy_bytes)) +
      " in " + std::to_string(std::lround(saves.written_ms)) + " ms, " +
      state::checkpoint_folder(folder_of(state), step).string());
  for (const Error& error : kept.left_behind) state.resources->logger.warning(to_string(error));
  self->send(state.actors.recorder, std::make_shared<const observe::RunEvent>(event));
  check_stop_time(self, saves.written_ms);
}

bool is_due(const SupervisorState& state, Time now) {
  const job::Checkpointing& wish = state.resources->setup.job.checkpoint;
  const double minutes = milliseconds_between(state.saves.last_begun, now) / 60'000;
  return engine::save_is_due(wish, state.job.loop.progress().step, minutes,
                             state.job.loop.is_last_planned() && state.job.loop.is_idle());
}

}  // namespace

std::string how_to_go_on(const SupervisorState& state, GoesOn who) {
  const std::int64_t saved = state.saves.last_step;
  std::string words = ": the same command goes on";
  if (who == GoesOn::by_itself) words = ": the job begins again";
  if (who == GoesOn::asked) words = ": the same command with --resume goes on";
  return step_text(saved) + " is saved" +
         (saved < state.job.loop.progress().step ? " and what followed is lost" : "") + words +
         " from there (" + state::checkpoint_folder(folder_of(state), saved).string() + ")";
}

std::string what_is_saved(const SupervisorState& state) {
  const std::string& why = state.stopping.unsaved;
  const std::int64_t finished = state.job.loop.progress().step;
  if (const std::string& part = state.stopping.part; !part.empty())
    return part + "; " + way_on_from_part(state, GoesOn::asked);
  if (state.saves.last_step > 0)
    return how_to_go_on(state, GoesOn::asked) +
           (why.empty() || state.saves.last_step == finished ? "" : "; not saved: " + why);
  if (finished == 0) return "nothing is saved: no step was finished";
  if (!why.empty()) return "nothing is saved: " + why;
  return state.job.is_stopping() ? "nothing is saved: it was cut short"
                                 : "nothing is saved: no step has changed a parameter";
}

void save_if_due(Self self) {
  auto& state = self->state;
  Saves& saves = state.saves;
  if (state.job.is_stopping()) return go_on_stopping(self);
  if (!is_due(state, now(self)) && !saves.wanted) return;
  if (saves.last_step == state.job.loop.progress().step) {
    // Who wants one before any step is finished gets that of the first.
    saves.wanted = saves.wanted && saves.last_step == 0;
    return;
  }
  // As soon as the layout without the lost nodes is up, where one comes.
  if (state.job.is_regrouping() && !state.job.is_halted()) {
    saves.wanted = true;
    return;
  }
  if (!saves.running) return begin_save(self);
  // The last state of a job is not left out, only late.
  if (state.job.loop.is_last_planned() && state.job.loop.is_idle()) saves.wanted = true;
  if (!saves.wanted && !std::exchange(saves.running->is_called_late, true))
    state.resources->logger.warning(
        "no checkpoint of " + step_text(state.job.loop.progress().step) + ": that of " +
        step_text(saves.running->progress.step) + " is still being written after " +
        std::to_string(std::lround(milliseconds_between(saves.running->begun, now(self)) / 1000)) +
        " s; save less often, or set checkpoint.dir to a faster disk");
}

void want_save(Self self) {
  auto& state = self->state;
  if (state.job.is_over() || state.job.is_stopping()) return;
  // A state that changes right now is wanted as it will be.
  const auto& running = state.saves.running;
  const bool at_rest = state.job.is_at_rest();
  const bool on_its_way =
      at_rest && running && running->progress.step == state.job.loop.progress().step;
  const bool saved = at_rest && state.saves.last_step == state.job.loop.progress().step;
  state.saves.wanted = !saved && !on_its_way;
  if (!state.saves.wanted)
    return state.resources->logger.info(step_text(state.job.loop.progress().step) +
                                        (saved ? " is saved already" : " is being saved already"));
  if (!running && at_rest) begin_save(self);
}

void share_saved(Self self, const SaveReport& report) {
  auto& state = self->state;
  auto& running = state.saves.running;
  if (const auto failed = state.saves.failed.find(report.number);
      failed != state.saves.failed.end())
    self->send(state.actors.keeper, stop_atom::value, failed->second.partial.string());
  if (!running || running->number != report.number || running->is_written) return;
  if (!report.is_saved) {
    Error error = report.error;
    const std::string who = "node " + std::to_string(report.device.node.value);
    error.where = who + (error.where.empty() ? "" : ", " + error.where);
    return save_failed(self, std::move(error));
  }
  running->shares[report.device] = report;
  complete_if_written(self);
}

void learned_for_save(Self self, std::int64_t number, const LearnedCosts& learned) {
  auto& running = self->state.saves.running;
  if (!running || running->number != number) return;
  running->progress.learned = learned;
  running->is_learned = true;
  complete_if_written(self);
}

void checkpoint_kept(Self self, const KeptCheckpoint& kept) {
  auto& state = self->state;
  auto& saves = state.saves;
  if (const auto late = saves.failed.extract(kept.number)) {
    if (kept.status.ok()) note_saved(self, late.mapped(), kept);
    return;
  }
  if (!saves.running || saves.running->number != kept.number) return;
  if (!kept.status.ok()) return save_failed(self, kept.status.error());
  note_saved(self, *saves.running, kept);
  save_ended(self);
}

bool is_awaited_by_save(const SupervisorState& state, NodeId node) {
  const auto& running = state.saves.running;
  if (!running || running->is_written) return false;
  return std::any_of(running->writers.begin(), running->writers.end(), [&](const auto& writer) {
    return writer.first.node == node && !running->shares.contains(writer.first);
  });
}

void give_up_save(Self self, const std::string& why) {
  auto& state = self->state;
  if (!state.saves.running || state.saves.running->is_written) return;
  state.saves.wanted = true;
  save_failed(self, {Errc::transport_failed, why, {}, "none needed: it is tried again"});
}

void watch_saves(Self self) {
  auto& state = self->state;
  if (state.job.is_stopping() && state.job.phase() != Phase::ending &&
      now(self) > state.stopping.save_until) {
    state.stopping.unsaved = "it took longer than cluster.stop_timeout_s leaves";
    return end_stopped(self);
  }
  const auto& running = state.saves.running;
  const double timeout_s = state.resources->setup.job.checkpoint.timeout_s;
  if (running && now(self) - running->begun > seconds(timeout_s))
    save_failed(self, {Errc::timed_out,
                       "it was not written within " + std::to_string(std::lround(timeout_s)) + " s",
                       running->partial.string(),
                       "look at this file system, or raise checkpoint.timeout_s"});
}

bool saves_at_end(const SupervisorState& state) {
  return state.saves.running.has_value() || state.saves.wanted;
}

void begin_stop(Self self, const std::string& why, std::int32_t exit_code) {
  auto& state = self->state;
  if (state.gathering)  // The run is as it was: the next head gathers them.
    return end(
        self, {kResumable, why + "; nodes of this run go on waiting for a head, with their state"});
  decide_stop(self, why, exit_code);
  go_on_stopping(self);
}

void decide_stop(Self self, const std::string& why, std::int32_t exit_code) {
  auto& state = self->state;
  const auto stop_time = seconds(state.resources->setup.job.cluster.stop_timeout_s);
  const std::string where =
      state.job.phase() == Phase::training && !state.job.loop.is_idle()
          ? " during " + step_text(state.job.loop.under_way().front().votes.step())
          : "";
  state.job.stop();
  state.stopping =
      Stopping{why + where, exit_code, std::nullopt, now(self) + stop_time,
               now(self) + std::chrono::duration_cast<Duration>(kShareOfStop * stop_time)};
}

void go_on_stopping(Self self) {
  auto& state = self->state;
  const Saves& saves = state.saves;
  if (state.job.is_over()) return;
  if (state.job.loop.is_decided()) return;  // Comes again when it is finished.
  const bool nothing_to_save =
      state.job.loop.progress().step == 0 || state.job.members.placed().empty();
  const bool has_failed =
      !saves.running && state.stopping.failed_step == state.job.loop.progress().step;
  if (nothing_to_save || saves.last_step == state.job.loop.progress().step || has_failed)
    return end_stopped(self);
  if (saves.running || !state.job.is_at_rest()) return;         // Comes again when that has ended.
  state.stopping.failed_step = state.job.loop.progress().step;  // One try for each state.
  if (!leave_out_lost_holders(state)) return end_stopped(self);
  begin_save(self);
}

void end_stopped(Self self) {
  auto& state = self->state;
  if (state.stopping.error) return fail(self, *state.stopping.error);
  const std::string& what = state.stopping.what;
  if (const std::string& part = state.stopping.part; !part.empty())
    return end(self, {kResumable, to_string(Error{Errc::transport_failed, what + "; " + part, "",
                                                  way_on_from_part(state, GoesOn::same_command)})});
  if (state.saves.last_step == 0)
    return end(self, {state.stopping.exit_code, what + "; there is no checkpoint to resume from"});
  const std::int32_t again = next_try(state);
  const GoesOn who = again > 0 ? GoesOn::by_itself : GoesOn::same_command;
  end(self, {kResumable, what + "; " + how_to_go_on(state, who), false, {}, again});
}

}  // namespace troupe::actors
