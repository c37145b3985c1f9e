#include "actors/supervisor_watch.hpp"

#include "actors/supervisor_gather.hpp"
#include "actors/supervisor_members.hpp"
#include "actors/supervisor_records.hpp"
#include "actors/supervisor_save.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = SupervisorState::Phase;

void check_deadline(Self self) {
  auto& state = self->state;
  const job::Cluster& cluster = state.resources->setup.job.cluster;
  if (now(self) <= state.deadline) return;
  if (state.phase == Phase::joining)
    fail(self,
         late_error(state.nodes, state.resources->listen, cluster.local_nodes == cluster.nodes));
  if (state.phase == Phase::applying) fail(self, slow_set_up(state.nodes, cluster.join_timeout_s));
}

void send_signs_of_life(Self self) {
  auto& state = self->state;
  if (!state.pace.due(now(self), seconds(state.resources->setup.job.cluster.heartbeat_interval_s)))
    return;
  for (const NodeEntry& node : state.nodes) send_to_node(self, node, alive_atom::value);
}

void find_silent_nodes(Self self) {
  auto& state = self->state;
  const double timeout_s = state.resources->setup.job.cluster.heartbeat_timeout_s;
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    NodeEntry& node = state.nodes[i];
    if (!is_there(node) || !node.silence.pass(now(self), seconds(timeout_s))) continue;
    node.silent = true;
    node.how_ended = silent_for(timeout_s);
    node_lost(self, i);
  }
}

void find_stalls(Self self) {
  auto& state = self->state;
  if (state.phase != Phase::training) return;
  const Duration waited = now(self) - state.last_finish;
  if (state.stalls.hopeless(waited, seconds(state.resources->setup.job.train.stall_timeout_s)))
    return fail(self, stalled_error(state, now(self)));
  if (state.stalls.overdue(waited)) state.resources->logger.warning(stall_text(state, now(self)));
}

}  // namespace

void watch(Self self) {
  auto& state = self->state;
  if (state.phase == Phase::gathering) watch_gathering(self);
  check_deadline(self);
  send_signs_of_life(self);
  find_silent_nodes(self);
  find_stalls(self);
  watch_newcomers(self);
  watch_saves(self);
  finish_if_all_gone(self);
  if (state.phase != Phase::ended)
    self->delayed_send(self, look_interval(state.resources->setup.job.cluster.heartbeat_interval_s),
                       tick_atom::value);
}

}  // namespace troupe::actors
