#include "actors/supervisor_actor.hpp"

#include "actors/exceptions.hpp"
#include "actors/supervisor_collect.hpp"
#include "actors/supervisor_control.hpp"
#include "actors/supervisor_end.hpp"
#include "actors/supervisor_layout.hpp"
#include "actors/supervisor_members.hpp"
#include "actors/supervisor_records.hpp"
#include "actors/supervisor_recovery.hpp"
#include "actors/supervisor_save.hpp"
#include "actors/supervisor_steps.hpp"
#include "actors/supervisor_watch.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = SupervisorState::Phase;
using NodePhase = NodeEntry::Phase;

void start(Self self, HeadResources* resources, const SpawnColleagues& spawn) {
  auto& state = self->state;
  state.resources = resources;
  const job::Job& job = resources->setup.job;
  state.length.emplace(job, resources->data.records);
  const JobProgress& before = resources->resume.progress;
  state.skipped.emplace(job.train.max_nonfinite_in_a_row, resources->data.records, before.skipped);
  state.progress = before;
  state.progress.bad.clear();
  state.progress.data = engine::data_order(job, resources->data);
  for (const auto& [id, batch] : before.bad) state.bad_ids.emplace(id, batch);
  state.planned_steps = state.saves.last_step = before.step;
  state.planned_tokens = before.tokens;
  state.configuration.epoch_number = before.generation;
  state.last_planned = before.step > 0 && state.length->reached(before.step, before.tokens);
  state.saves.last_begun = now(self);
  state.nodes.resize(static_cast<std::size_t>(job.cluster.nodes));
  state.deadline = now(self) + seconds(job.cluster.join_timeout_s);
  state.last_finish = now(self);
  state.colleagues =
      spawn(self->system(), caf::actor_cast<SupervisorActor>(self), state.length->steps());
  self->set_down_handler([self](const caf::down_msg& down) { connection_lost(self, down.source); });
  watch(self);
}

}  // namespace

SupervisorActor::behavior_type supervisor(Self self, HeadResources* resources,
                                          const SpawnColleagues& spawn) {
  tell_of_exceptions(self, "the supervisor", [self](const Error& error) {
    fail(self, error);
    finish_if_all_gone(self, true);  // It hears no answer any more.
  });
  start(self, resources, spawn);
  return {
      [self](join_atom, const NodeHello& hello) { return join(self, hello); },
      [self](const NodeReady& ready) { node_ready(self, ready); },
      [self](fetched_atom, NodeId id, EpochNumber epoch) { node_fetched(self, id, epoch); },
      [self](applied_atom, NodeId id, EpochNumber epoch) {
        if (node_applied(self, id, epoch)) start_training(self);
      },
      [self](const engine::Prepared& report) { prepared(self, report); },
      [self](const engine::DeviceReport& report) { device_finished(self, report); },
      [self](const Offers& offers) { offered(self, offers); },
      [self](failed_atom, NodeId id, Error& error) { node_failed(self, id.index(), error); },
      [self](failed_atom, NodeId id, EpochNumber epoch, Error& error) {
        if (epoch == self->state.configuration.epoch_number) node_failed(self, id.index(), error);
      },
      [self](const PlannedBatchPtr& batch) { planned(self, batch); },
      [self](failed_atom, EpochNumber epoch, const Error& error) {
        settle_missed_peers(self, epoch, error);
      },
      [self](lost_atom, NodeId reporter, NodeId peer, EpochNumber epoch) {
        peer_missed(self, reporter, peer, epoch);
      },
      [self](failed_atom, const Error& error) {
        fail(self, self->state.lost_while_collected.value_or(error));
      },
      [self](exited_atom, std::int32_t pid, const std::string& how) {
        process_exited(self, pid, how);
      },
      [self](stop_atom, std::int32_t signal) { stop(self, signal); },
      [self](control_atom, const ControlRequest& request) { return control(self, request); },
      [self](leave_atom) { settle_told_nodes(self); },
      [self](save_atom) { want_save(self); },
      [self](const SaveReport& report) { share_saved(self, report); },
      [self](const TemplateSetPtr& templates) { self->state.templates = templates; },
      [self](const KeptCheckpointPtr& kept) { checkpoint_kept(self, *kept); },
      [self](lost_atom, NodeId id) { node_lost(self, id.index()); },
      [self](alive_atom, NodeId id) { self->state.nodes[id.index()].silence.heard(); },
      [self](tick_atom) { watch(self); },
  };
}

}  // namespace troupe::actors
