#include "actors/supervisor/supervisor_watch.hpp"

#include <algorithm>

#include "actors/supervisor/supervisor_gather.hpp"
#include "actors/supervisor/supervisor_layout.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_save.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = SupervisorState::Phase;

/// Exit code of a job with too few nodes that has nothing to resume from.
constexpr std::int32_t kTooFew = 1;

void check_deadline(Self self) {
  auto& state = self->state;
  const job::Cluster& cluster = state.resources->setup.job.cluster;
  if (now(self) <= state.deadline) return;
  if (state.phase == Phase::joining) {
    const auto there = std::count_if(state.nodes.begin(), state.nodes.end(), takes_part);
    if (cluster.min_nodes > 0 && there >= cluster.min_nodes) return begin_job(self);
    fail(self, late_error(state.nodes, state.resources->listen, cluster.key.string(),
                          cluster.local_nodes == cluster.nodes));
  }
  if (state.phase == Phase::applying) fail(self, slow_set_up(state.nodes, cluster.join_timeout_s));
}

/// Trains on with fewer nodes than the job wants, but not for long.
void watch_few_nodes(Self self) {
  auto& state = self->state;
  const job::Job& job = state.resources->setup.job;
  const auto there = std::count_if(state.nodes.begin(), state.nodes.end(), takes_part);
  const bool is_at_work = state.phase == Phase::applying || state.phase == Phase::training;
  if (!is_at_work || state.stopping || state.last_planned || there >= job.cluster.min_nodes) {
    state.few_since.reset();
    return;
  }
  const std::string few = std::to_string(there) + " of at least " +
                          std::to_string(job.cluster.min_nodes) + " nodes (cluster.min_nodes)";
  const std::string wait = seconds_text(job.recovery.wait_for_nodes_s);
  if (!state.few_since) {
    state.few_since = now(self);
    state.resources->logger.warning(few + " take part: the job waits " + wait +
                                    " for others (recovery.wait_for_nodes_s), then saves and ends");
  }
  if (now(self) - *state.few_since > seconds(job.recovery.wait_for_nodes_s))
    begin_stop(self, few + " took part for " + wait, kTooFew);
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
  watch_few_nodes(self);
  watch_newcomers(self);
  watch_saves(self);
  finish_if_all_gone(self);
  if (state.phase != Phase::ended)
    self->delayed_send(self, look_interval(state.resources->setup.job.cluster.heartbeat_interval_s),
                       tick_atom::value);
}

}  // namespace troupe::actors
