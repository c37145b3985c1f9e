#include "actors/supervisor/supervisor_watch.hpp"

#include <algorithm>
#include <utility>

#include "actors/supervisor/supervisor_collect.hpp"
#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_gather.hpp"
#include "actors/supervisor/supervisor_layout.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_stalls.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "actors/supervisor/supervisor_wait.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = JobPhase;

/// Exit code of a job with too few nodes that has nothing to resume from.
constexpr std::int32_t kTooFew = 1;

/// Whether all have come in time and those that are not ready may still open their data: a large
/// data set is no node that does not come, and each has a time of its own for it.
bool may_still_open(Self self) {
  auto& state = self->state;
  const Membership& members = state.job.members;
  const double timeout_s = state.resources->setup.job.cluster.open_timeout_s;
  if (!std::ranges::all_of(members.all(), is_there)) return false;
  if (!members.late(now(self), seconds(timeout_s)).empty()) return false;
  if (!std::exchange(state.is_opening_told, true))
    state.resources->logger.info(
        "all nodes joined; the job waits for those that still open data "
        "and devices: " +
        still_opening(members) + "; each has " + seconds_text(timeout_s) +
        " (cluster.open_timeout_s)");
  return true;
}

void check_deadline(Self self) {
  auto& state = self->state;
  const job::Cluster& cluster = state.resources->setup.job.cluster;
  if (now(self) <= state.deadline) return;
  if (state.job.phase() == Phase::joining) {
    const auto there = static_cast<std::int32_t>(state.job.members.present().size());
    if (cluster.min_nodes > 0 && there >= cluster.min_nodes) return begin_job(self);
    if (may_still_open(self)) return;
    fail(self, late_error(state.job.members, state.resources->listen, cluster.key.string(),
                          cluster.local_nodes == cluster.nodes));
  }
  if (state.job.phase() == Phase::applying) lose_late(self);
}

/// Trains on with fewer nodes than the job wants, but not for long.
void watch_few_nodes(Self self) {
  auto& state = self->state;
  const job::Job& job = state.resources->setup.job;
  const bool is_at_work =
      state.job.phase() == Phase::applying || state.job.phase() == Phase::training;
  const auto shortage = state.job.members.shortage(
      is_at_work && !state.job.is_stopping() && !state.job.loop.is_last_planned(),
      job.cluster.min_nodes, now(self));
  if (!shortage) return;
  const std::string few = std::to_string(shortage->present) + " of at least " +
                          std::to_string(job.cluster.min_nodes) + " nodes (cluster.min_nodes)";
  const std::string wait = seconds_text(job.recovery.wait_for_nodes_s);
  if (shortage->is_new)
    state.resources->logger.warning(few + " take part: the job waits " + wait +
                                    " for others (recovery.wait_for_nodes_s), then saves and ends");
  if (shortage->lasted > seconds(job.recovery.wait_for_nodes_s))
    begin_stop(self, few + " took part for " + wait, kTooFew);
}

void send_signs_of_life(Self self) {
  auto& state = self->state;
  if (!state.pace.due(now(self), seconds(state.resources->setup.job.cluster.heartbeat_interval_s)))
    return;
  send_to_nodes(self, alive_atom::value);
}

void find_silent_nodes(Self self) {
  auto& state = self->state;
  const double timeout_s = state.resources->setup.job.cluster.heartbeat_timeout_s;
  for (std::size_t i = 0; i < state.job.members.size(); ++i) {
    const NodeId node{i};
    if (!state.job.members.is_there(node) ||
        !state.links[i].silence.pass(now(self), seconds(timeout_s)))
      continue;
    const Time heard = std::max(state.links[i].silence.last_heard(), state.job.members[node].since);
    state.job.members.suspect(node, heard);
    state.job.members.fell_silent(node);
    state.job.members.ended(node, silent_for(timeout_s) + long_work_text(state, node, now(self)));
    node_lost(self, node);
  }
}

}  // namespace

void watch(Self self) {
  auto& state = self->state;
  if (state.job.phase() == Phase::gathering) watch_gathering(self);
  check_deadline(self);
  send_signs_of_life(self);
  find_silent_nodes(self);
  find_stalls(self);
  watch_offers(self);
  watch_few_nodes(self);
  watch_newcomers(self);
  watch_wait(self);
  watch_saves(self);
  finish_if_all_gone(self);
  if (state.job.phase() != Phase::ended)
    self->delayed_send(self, look_interval(state.resources->setup.job.cluster.heartbeat_interval_s),
                       tick_atom::value);
}

}  // namespace troupe::actors
