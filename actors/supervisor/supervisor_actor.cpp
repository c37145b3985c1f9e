#include "actors/supervisor/supervisor_actor.hpp"

#include <utility>

#include "actors/link/exceptions.hpp"
#include "actors/supervisor/supervisor_collect.hpp"
#include "actors/supervisor/supervisor_control.hpp"
#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_gather.hpp"
#include "actors/supervisor/supervisor_layout.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_memory.hpp"
#include "actors/supervisor/supervisor_processes.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_recovery.hpp"
#include "actors/supervisor/supervisor_refused_batch.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_stalls.hpp"
#include "actors/supervisor/supervisor_start.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "actors/supervisor/supervisor_steps.hpp"
#include "actors/supervisor/supervisor_watch.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;

void start(Self self, HeadResources* resources, const SpawnActors& spawn) {
  auto& state = self->state;
  state.resources = resources;
  state.spawn = spawn;
  const auto places = static_cast<std::size_t>(resources->setup.job.cluster.nodes);
  state.job.members = Membership(places);
  state.links.resize(places);
  if (resources->gather)
    begin_gathering(self);
  else
    begin(self);
  self->set_down_handler([self](const caf::down_msg& down) { connection_lost(self, down.source); });
  watch(self);
}

/// Whether the process that has this place says so: one that was lost and wakes may say in another
/// one's name that it is ready, say, or that a signal asked it to end.
bool has_place(Self self, NodeId id) {
  const auto& sender = self->current_sender();
  const auto& holder = self->state.links[id.index()].handle;
  return !sender || !holder || (sender->id() == holder->id() && sender->node() == holder->node());
}

SupervisorActor::behavior_type supervisor(Self self, HeadResources* resources,
                                          const SpawnActors& spawn) {
  tell_of_exceptions(self, "the supervisor", [self](const Error& error) {
    fail(self, error);
    finish_if_all_gone(self, true);  // It hears no answer any more.
  });
  start(self, resources, spawn);
  return {
      [self](join_atom, const NodeHello& hello) { return join(self, hello); },
      [self](const NodeReady& ready) {
        if (has_place(self, ready.node)) node_ready(self, ready);
      },
      [self](fetched_atom, NodeId id, EpochNumber epoch, double connect_ms) {
        node_fetched(self, id, epoch, connect_ms);
      },
      [self](applied_atom, NodeId id, EpochNumber epoch) {
        if (node_applied(self, id, epoch)) start_training(self);
      },
      [self](const engine::Prepared& report) { prepared(self, report); },
      [self](const engine::DeviceReport& report) {
        if (self->state.gathering) return gathered_device_finished(self, report);
        device_finished(self, report);
      },
      [self](const Offers& offers) { offered(self, offers); },
      [self](failed_atom, NodeId id, Error& error) {
        if (has_place(self, id)) node_failed(self, id, error);
      },
      [self](failed_atom, NodeId id, EpochNumber epoch, Error& error) {
        if (epoch == self->state.job.members.generation()) device_failed(self, id, error);
      },
      [self](const PlannedBatchPtr& batch) { planned(self, batch); },
      [self](next_atom, EpochNumber epoch, const Error& error) { not_planned(self, epoch, error); },
      [self](const RefusedBatchPtr& refused) { batch_refused(self, refused); },
      [self](failed_atom, EpochNumber epoch, const Error& error) {
        settle_missed_peers(self, epoch, error);
      },
      [self](lost_atom, NodeId reporter, NodeId peer, EpochNumber epoch, const std::string& how) {
        peer_missed(self, reporter, peer, epoch, how);
      },
      [self](unreached_atom, NodeId reporter, NodeId peer, EpochNumber epoch,
             const std::string& how) {
        peer_missed(self, reporter, peer, epoch, how, NoWay::unmade);
      },
      [self](failed_atom, const Error& error) { head_failed(self, error); },
      [self](NodeId id, const engine::FailedWork& failed) {
        if (failed.step == 0) return opening_failed(self, id, failed);
        work_failed(self, id, failed);
      },
      [self](NodeId id, const engine::LongWorks& told) { note_long_work(self, id, told); },
      [self](NodeId id, const engine::LongWaits& told) { note_long_waits(self, id, told); },
      [self](exited_atom, std::int32_t pid, const std::string& how, std::int32_t signal) {
        process_exited(self, pid, how, signal);
      },
      [self](stop_atom, std::int32_t signal) { stop(self, signal); },
      [self](control_atom, const ControlRequest& request) { return control(self, request); },
      [self](leave_atom) { settle_told_nodes(self); },
      [self](save_atom) { want_save(self); },
      [self](const SaveReport& report) { share_saved(self, report); },
      [self](save_atom, std::int64_t number, const LearnedCostsPtr& learned) {
        if (number == kForNextHead) return learned_for_next_head(self, *learned);
        learned_for_save(self, number, *learned);
      },
      [self](const TemplateSetPtr& templates) { take_templates(self, templates); },
      [self](const KeptCheckpointPtr& kept) { checkpoint_kept(self, *kept); },
      [self](lost_atom, NodeId id, std::int32_t pid) {  // Another one may have its place by now.
        if (self->state.job.members[id].pid == pid) node_lost(self, id);
      },
      [self](alive_atom, NodeId id) {
        if (has_place(self, id)) self->state.links[id.index()].silence.heard(now(self));
      },
      [self](tick_atom) { watch(self); },
  };
}

}  // namespace

SupervisorActor spawn_supervisor(caf::actor_system& system, HeadResources* resources,
                                 SpawnActors spawn) {
  return system.spawn(supervisor, resources, std::move(spawn));
}

}  // namespace troupe::actors
