#include "actors/supervisor/supervisor_stalls.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/coordination/silent_ways.hpp"
#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_last_save.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_recovery.hpp"
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

/// Ends the job for a step that is decided and does not end. Who is not done with it has half of an
/// update, or heard no word of it: all others have the whole step, and save it.
void save_without_late(Self self) {
  auto& state = self->state;
  const Error error = stalled_error(state, now(self));
  const RunningStep& step = state.job.loop.under_way().front();
  const std::string how = " has not finished step " + std::to_string(step.votes.step());
  std::set<NodeId> late;
  for (const DeviceId device : step.waiting_for)
    late.insert(state.configuration.plan.devices[device.index()].node);
  for (const NodeId node : late) {
    if (state.job.is_over()) return;
    const std::string what = describe(state.job.members, node) + how;
    if (state.job.is_stopping())
      lose_while_stopping(self, node, what);
    else
      save_and_fail_without(self, node, what, error);
    state.job.members.fell_silent(node);  // Its process is still there, and was told to end.
  }
}

/// The layout comes up no further: what nodes have is saved from where it lies.
void give_up_layout(Self self, const Error& error) {
  self->state.job.halt();
  save_and_fail(self, error);
}

/// Nodes that were told of the newest layout and have come so far with it.
std::vector<NodeId> nodes_in(const SupervisorState& state, Member::Phase phase) {
  std::vector<NodeId> nodes;
  for (const NodeReady& told : state.configuration.nodes)
    if (state.job.members.takes_part(told.node) && state.job.members[told.node].phase == phase)
      nodes.push_back(told.node);
  return nodes;
}

/// Those of the late nodes that keep the layout from coming up. A device that is in a stage of the
/// layout before hears of no other one, and who is to give it state or get some waits for it.
std::vector<NodeId> to_blame(const SupervisorState& state, const std::vector<NodeId>& late,
                             Time now) {
  const Duration waited = now - state.change.begun;
  std::vector<NodeId> nodes;
  std::copy_if(late.begin(), late.end(), std::back_inserter(nodes), [&](NodeId node) {
    const auto& works = state.links[node.index()].long_work;
    return std::any_of(works.begin(), works.end(),
                       [&](const KnownWork& known) { return 2 * (now - known.since) >= waited; });
  });
  if (nodes.empty() && late.size() == 1) nodes = late;
  // No node would be left, or it is the layout that none of them can set up.
  if (nodes.size() == state.job.members.present().size()) nodes.clear();
  return nodes;
}

/// Times `cluster.heartbeat_timeout_s` that a message may be on its way: TCP sends what a short
/// trouble has swallowed again after up to twice its time.
constexpr double kMessageTimeouts = 2;

/// Ways on which nothing comes any more; none where no step is waited for.
std::vector<SilentWay> find_silent_ways(const SupervisorState& state) {
  if (state.job.phase() != Phase::training || state.job.loop.is_idle()) return {};
  if (state.job.is_halted()) return {};
  std::vector<engine::LongWait> waits;
  for (std::size_t i = 0; i < state.links.size(); ++i)
    if (state.job.members.takes_part(NodeId{i}))
      waits.insert(waits.end(), state.links[i].long_waits.begin(), state.links[i].long_waits.end());
  const double silence_s = state.resources->setup.job.cluster.heartbeat_timeout_s;
  const Duration bound = state.stalls.message_bound(seconds(kMessageTimeouts * silence_s));
  return silent_ways(state.configuration.plan, state.job.loop.under_way().front().batch->iteration,
                     waits, std::chrono::duration<double>(bound).count());
}

/// The same while state is copied, by whom nodes say that they do not hear.
std::vector<SilentWay> find_silent_copies(const SupervisorState& state) {
  const bool is_late =
      state.job.phase() == Phase::training && !state.configuration.arriving.empty();
  if (state.job.is_halted() || !(is_late || state.job.phase() == Phase::applying)) return {};
  std::vector<SilentWay> ways;
  for (std::size_t i = 0; i < state.links.size(); ++i)
    for (const engine::SilentPeer& silent : state.links[i].silent)
      if (silent.epoch_number == state.job.members.generation() &&
          state.job.members.takes_part(NodeId{i}))
        ways.push_back({silent.peer, NodeId{i}, silent.seconds});
  const double silence_s = state.resources->setup.job.cluster.heartbeat_timeout_s;
  Duration bound = seconds(kMessageTimeouts * silence_s);
  // Rows of the step that runs beside go the same way, and signs of life behind them.
  if (is_late) bound = state.stalls.message_bound(bound);
  return due_ways(ways, std::chrono::duration<double>(bound).count());
}

/// Both ends of such a way miss each other. `what`: of the messages on it.
void miss_each_other(Self self, const SilentWay& way, const std::string& what) {
  auto& state = self->state;
  const auto missed = state.job.members.missed().find(way.from);
  if (missed != state.job.members.missed().end() && missed->second.contains(way.to)) return;
  // Since then, not since it is known.
  for (const NodeId end : {way.from, way.to})
    state.job.members.suspect(end, now(self) - seconds(way.seconds));
  peer_missed(self, way.to, way.from, state.job.members.generation(),
              what + ", and neither of them was told of an error");
  // Either end may be at fault, or neither: that one of them has something to wait for is chance.
  state.job.members.miss(way.from, way.to);
}

/// `6.5 s`.
std::string tenths_text(double duration_s) {
  return seconds_text(std::round(10 * duration_s) / 10);
}

/// Losses since a layout was up, behind which a call that opens a group of NCCL may not hang again:
/// of two nodes with such calls one opening shows the first alone.
constexpr std::size_t kLostAmidOpenings = 2;

}  // namespace

void note_long_work(Self self, NodeId node, const engine::LongWorks& told) {
  auto& known = self->state.links[node.index()].long_work;
  known.clear();
  for (const engine::LongWork& work : told.works)
    known.push_back({work.device, now(self) - seconds(work.seconds), work.work});
}

void note_long_waits(Self self, NodeId node, const engine::LongWaits& told) {
  auto& state = self->state;
  state.links[node.index()].long_waits = told.waits;
  state.links[node.index()].silent = told.silent;
  for (const SilentWay& way : find_silent_ways(state))
    miss_each_other(self, way, "what it sent " + tenths_text(way.seconds) + " ago has not come");
  for (const SilentWay& way : find_silent_copies(state))
    miss_each_other(self, way,
                    "nothing has come from it for " + tenths_text(way.seconds) +
                        " while state is copied between them");
}

void find_stalls(Self self) {
  auto& state = self->state;
  if (state.job.phase() != Phase::training) return;
  if (state.job.is_stopping()) return;                                // That has an end of its own.
  if (state.job.is_halted() && !state.job.loop.is_decided()) return;  // No step is waited for.
  const Duration waited = now(self) - state.last_finish;
  // That has an end of its own, which names the function (CallWatch); no node is to blame.
  const bool is_in_call = state.job.loop.is_idle() && plugins::oldest_user_call();
  if (!is_in_call &&
      state.stalls.hopeless(waited, seconds(state.resources->setup.job.train.stall_timeout_s))) {
    const auto stuck = stuck_nodes(state, now(self), waited);
    if (stuck.empty() && state.job.loop.is_decided()) return save_without_late(self);
    if (stuck.empty()) return save_and_fail(self, stalled_error(state, now(self)));
    return lose_stuck(self, stuck);
  }
  if (state.stalls.overdue(waited)) state.resources->logger.warning(stall_text(state, now(self)));
}

void lose_late(Self self) {
  auto& state = self->state;
  std::vector<NodeId> late = nodes_in(state, Member::Phase::ready);
  const std::string missing =
      late.empty() ? "did not turn over to layout " : "did not fetch its state of layout ";
  if (late.empty()) late = nodes_in(state, Member::Phase::fetched);
  const Error error = slow_set_up(state, late, now(self));
  const std::vector<NodeId> lost = to_blame(state, late, now(self));
  if (lost.empty() || state.regrouping.is_overdue) return give_up_layout(self, error);
  const std::string how = missing + std::to_string(state.job.members.generation()) + " within " +
                          seconds_text(state.resources->setup.job.cluster.join_timeout_s) +
                          " (cluster.join_timeout_s)";
  for (const NodeId node : lost) {
    const std::string what = describe(state.job.members, node) + " was lost: it " + how +
                             long_work_text(state, node, now(self));
    if (!recover(self, node, what).ok()) return give_up_layout(self, error);
    state.job.members.fell_silent(node);  // Its process is still there, and was told to end.
    state.regrouping.is_overdue = true;
  }
}

void opening_failed(Self self, NodeId id, const engine::FailedWork& failed) {
  auto& state = self->state;
  if (failed.epoch_number != state.job.members.generation()) return;
  // Else a device was lost beside a step, or it is of a layout that was given up.
  const bool comes_up = state.job.phase() == Phase::applying;
  const Regrouping& before = state.regrouping;
  if (comes_up && before.is_overdue && before.lost.size() >= kLostAmidOpenings) {
    Error error = failed.error;
    error.message += "; before that " + before.why_lost;
    error.fix =
        "look at what NCCL says there (NCCL_DEBUG=INFO) and at the network that it takes "
        "(NCCL_SOCKET_IFNAME), or do without it (cluster.sums and cluster.rows = \"messages\")";
    return node_failed(self, id, error, /*is_intact=*/false);
  }
  const bool was_there = state.job.members.is_there(id);
  work_failed(self, id, failed);
  if (comes_up && was_there && !state.job.members.is_there(id)) state.regrouping.is_overdue = true;
}

}  // namespace troupe::actors
