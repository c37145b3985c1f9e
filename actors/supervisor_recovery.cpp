#include "actors/supervisor_recovery.hpp"

#include <algorithm>
#include <utility>

#include "actors/supervisor_records.hpp"
#include "actors/supervisor_regrouping.hpp"
#include "actors/supervisor_save.hpp"
#include "actors/supervisor_steps.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = SupervisorState::Phase;

bool may_recover(const SupervisorState& state) {
  const bool at_work = state.phase == Phase::applying || state.phase == Phase::training ||
                       state.phase == Phase::collecting;
  return at_work && !state.stopping;
}

/// Where state lies once a node is gone. Nodes that were told to turn over to a layout have what it
/// wants there, whether they have done so or not.
StatePlacement placed_without(const SupervisorState& state, NodeId lost) {
  StatePlacement left = state.change.is_settling ? state.change.want : state.placed;
  for (Shard& shard : left)
    std::erase_if(shard.holders, [lost](const DeviceSlot& device) { return device.node == lost; });
  return left;
}

/// Who is left and stays.
std::set<NodeId> nodes_without(const SupervisorState& state, NodeId lost) {
  std::set<NodeId> nodes;
  for (std::size_t i = 0; i < state.nodes.size(); ++i)
    if (takes_part(state.nodes[i]) && NodeId{i} != lost && !state.leaving.contains(NodeId{i}))
      nodes.insert(NodeId{i});
  return nodes;
}

}  // namespace

Status recover(Self self, NodeId lost, const std::string& what) {
  auto& state = self->state;
  if (!may_recover(state)) return Error{Errc::unavailable, "the job has not begun", {}, {}};
  const Time noticed = now(self);
  Regrouping regrouping;
  if (state.regrouping) regrouping = *state.regrouping;
  regrouping.left = placed_without(state, lost);
  if (auto decided = plan_regrouping(state, nodes_without(state, lost), regrouping); !decided.ok())
    return decided;
  if (regrouping.lost.empty()) {
    regrouping.noticed = noticed;
    regrouping.why = what;
    if (state.nodes[lost.index()].silent)
      regrouping.detect_ms = 1000 * state.resources->setup.job.cluster.heartbeat_timeout_s;
  }
  regrouping.lost.push_back(lost);
  std::erase(regrouping.joined, lost);
  std::erase(regrouping.drained, lost);
  state.resources->logger.warning(what + "; the job goes on without it");
  forget_node(self, lost, what);
  state.leaving.erase(lost);
  state.placed = regrouping.left;
  state.change.is_settling = false;
  state.regrouping = std::move(regrouping);
  give_up_save(self, what);
  // Who is left finishes a step whose COMMIT is known; the last one to do so makes it go on.
  if (state.phase == Phase::training && !state.steps.empty() && state.steps.front().outcome)
    finish_ended_steps(self);
  else
    regroup(self);
  return Done{};
}

void peer_missed(Self self, NodeId reporter, NodeId peer, EpochNumber epoch_number) {
  auto& state = self->state;
  if (epoch_number != state.configuration.epoch_number || peer.index() >= state.nodes.size())
    return;
  if (!is_there(state.nodes[peer.index()]) || !is_there(state.nodes[reporter.index()])) return;
  state.missed[peer].insert(reporter);
  expect_reason(self, {Errc::transport_failed,
                       "node " + std::to_string(reporter.value) + " lost its connection to node " +
                           std::to_string(peer.value),
                       {},
                       "look at the network between these machines, then start the job again"});
}

void settle_missed_peers(Self self, EpochNumber epoch_number, const Error& error) {
  auto& state = self->state;
  if (epoch_number != state.configuration.epoch_number || state.regrouping) return;
  if (state.phase == Phase::ending || state.phase == Phase::ended) return;
  std::vector<std::pair<std::size_t, NodeId>> missed;
  for (const auto& [peer, reporters] : state.missed) missed.emplace_back(reporters.size(), peer);
  // Of two that miss each other, either may be at fault: the one goes that can be done without.
  std::sort(missed.rbegin(), missed.rend());
  for (const auto& [count, peer] : missed) {
    NodeEntry& node = state.nodes[peer.index()];
    if (!is_there(node)) continue;
    std::string reporters;
    for (const NodeId reporter : state.missed[peer])
      reporters += (reporters.empty() ? "" : ", ") + std::to_string(reporter.value);
    const std::string what = describe(node, peer.index()) +
                             " was lost: it answers, but its connections to nodes " + reporters +
                             " broke";
    if (recover(self, peer, what).ok()) {
      node.silent = true;  // Its process may still be there.
      return;
    }
  }
  fail(self, error);
}

}  // namespace troupe::actors
