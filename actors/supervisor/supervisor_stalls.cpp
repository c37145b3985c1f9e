#include "actors/supervisor/supervisor_stalls.hpp"

#include <map>
#include <utility>

#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "runtime/plugins/user_calls.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = JobPhase;

/// Nodes that the oldest step waits for and whose device has been in one piece of its work for half
/// of this time, with that work, the oldest of each. The others of the step only wait for them.
std::map<NodeId, engine::FailedWork> stuck_nodes(const SupervisorState& state, Time now,
                                                 Duration waited) {
  std::map<NodeId, engine::FailedWork> stuck;
  if (state.job.loop.is_idle()) return stuck;
  const RunningStep& step = state.job.loop.under_way().front();
  for (std::size_t i = 0; i < state.links.size(); ++i) {
    const NodeId node{i};
    if (!state.job.members.takes_part(node)) continue;
    const KnownWork* oldest = nullptr;
    for (const KnownWork& known : state.links[i].long_work) {
      if (known.work.epoch_number != state.job.members.generation() ||
          known.work.step != step.votes.step() || !step.waiting_for.contains(known.device) ||
          2 * (now - known.since) < waited)
        continue;
      if (oldest == nullptr || known.since < oldest->since) oldest = &known;
    }
    if (oldest == nullptr) continue;
    engine::FailedWork failed = oldest->work;
    failed.error.message = work_text(*oldest, now);
    stuck.emplace(node, std::move(failed));
  }
  return stuck;
}

/// All of them are lost at once: the next layout must not wait for one whose thread is in a stage.
void lose_stuck(Self self, const std::map<NodeId, engine::FailedWork>& stuck) {
  auto& state = self->state;
  bool is_first = true;
  for (const auto& [node, failed] : stuck) {
    if (state.job.is_over()) return;
    if (std::exchange(is_first, false)) {
      work_failed(self, node, failed);
      continue;
    }
    state.job.members.ended(node, failed.error.message);
    node_lost(self, node);
    state.job.members.fell_silent(node);  // Its process is still there, and was told to end.
  }
}

}  // namespace

void note_long_work(Self self, NodeId node, const engine::LongWorks& told) {
  auto& known = self->state.links[node.index()].long_work;
  known.clear();
  for (const engine::LongWork& work : told.works)
    known.push_back({work.device, now(self) - seconds(work.seconds), work.work});
}

void find_stalls(Self self) {
  auto& state = self->state;
  if (state.job.phase() != Phase::training) return;
  const Duration waited = now(self) - state.last_finish;
  // That has an end of its own, which names the function (CallWatch); no node is to blame.
  const bool is_in_call = state.job.loop.is_idle() && plugins::oldest_user_call();
  if (!is_in_call &&
      state.stalls.hopeless(waited, seconds(state.resources->setup.job.train.stall_timeout_s))) {
    const auto stuck = stuck_nodes(state, now(self), waited);
    if (stuck.empty()) return fail(self, stalled_error(state, now(self)));
    return lose_stuck(self, stuck);
  }
  if (state.stalls.overdue(waited)) state.resources->logger.warning(stall_text(state, now(self)));
}

}  // namespace troupe::actors
