#include "actors/supervisor/supervisor_recovery.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_steps.hpp"
#include "scheduler/recovery/next_layout.hpp"

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
/// wants there, whether they have done so or not; but for what arrives during its first step.
StatePlacement placed_without(const SupervisorState& state, NodeId lost) {
  const bool is_there = state.change.is_settling && state.change.arriving.empty();
  StatePlacement left = is_there ? state.change.want : state.placed;
  scheduler::drop_holders(left, lost);
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
  auto decided = plan_regrouping(state, nodes_without(state, lost), regrouping);
  if (!decided.ok() && !state.leaving.empty()) {  // Who wanted to leave is needed now.
    const auto leaving = std::exchange(state.leaving, {});
    decided = plan_regrouping(state, nodes_without(state, lost), regrouping);
    if (!decided.ok()) state.leaving = leaving;
    if (decided.ok()) regrouping.drained.clear();
  }
  if (!decided.ok()) return decided;
  for (const NodeId node : state.newcomers)
    if (std::find(regrouping.joined.begin(), regrouping.joined.end(), node) ==
        regrouping.joined.end())
      regrouping.joined.push_back(node);
  if (regrouping.lost.empty() && !regrouping.is_takeover) {
    regrouping.noticed = noticed;
    regrouping.why = what;
    if (state.nodes[lost.index()].silent)
      regrouping.detect_ms = 1000 * state.resources->setup.job.cluster.heartbeat_timeout_s;
  }
  regrouping.lost.push_back(lost);
  std::erase(regrouping.joined, lost);
  std::erase(regrouping.drained, lost);
  const std::string tight = regrouping.room.ok() ? ""
                                                 : "; memory may not do while its next layout "
                                                   "comes up: " +
                                                       regrouping.room.error().message;
  state.resources->logger.warning(what + "; the job goes on without it" + tight);
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

void do_without_holder(Self self, NodeId lost, const std::string& what) {
  auto& state = self->state;
  auto left = placed_without(state, lost);
  const bool is_whole = std::none_of(left.begin(), left.end(),
                                     [](const Shard& shard) { return shard.holders.empty(); });
  if (is_whole) state.placed = std::move(left);
  std::erase_if(state.devices, [lost](const DeviceSlot& device) { return device.node == lost; });
  if (is_awaited_by_save(state, lost)) give_up_save(self, what);
}

void peer_missed(Self self, NodeId reporter, NodeId peer, EpochNumber epoch_number) {
  auto& state = self->state;
  if (epoch_number != state.configuration.epoch_number || peer.index() >= state.nodes.size())
    return;
  const auto belongs = [&](NodeId node) {
    const auto& told = state.configuration.nodes;
    return std::any_of(told.begin(), told.end(),
                       [node](const NodeReady& ready) { return ready.node == node; });
  };
  // Not one that left in order, nor the process that took its place.
  if (!belongs(peer) || !belongs(reporter)) return;
  state.missed[peer].insert(reporter);
  expect_reason(self, {Errc::transport_failed,
                       "node " + std::to_string(reporter.value) + " lost its connection to node " +
                           std::to_string(peer.value),
                       {},
                       {}});
}

namespace {

/// The words of a transport, which knows peers by their numbers alone, with host and process.
std::string with_hosts(const SupervisorState& state, const std::string& text) {
  constexpr std::string_view kPeer = "peer ";
  const auto begin = text.find(kPeer);
  if (begin == std::string::npos) return text;
  std::size_t id = 0;
  const char* const number = text.data() + begin + kPeer.size();
  const auto [end, fault] = std::from_chars(number, text.data() + text.size(), id);
  if (fault != std::errc{} || id >= state.nodes.size()) return text;
  return text.substr(0, begin) + describe(state.nodes[id], id) + end;
}

/// The end of a job whose nodes all answer, though some do not reach each other. `hindrance`: why
/// none of them could be done without; empty where that could not be tried.
Error broken_way(const SupervisorState& state, const Error& error, const std::string& hindrance) {
  Error told = error;
  told.message = with_hosts(state, error.message);
  if (!state.missed.empty()) {
    const auto& [peer, reporters] = *state.missed.begin();
    const NodeId reporter = *reporters.begin();
    told.where.clear();
    told.message = describe(state.nodes[reporter.index()], reporter.index()) +
                   " lost its connection to " + describe(state.nodes[peer.index()], peer.index()) +
                   ", and both answer the head";
  }
  if (!hindrance.empty()) told.message += "; going on without one of them was tried: " + hindrance;
  if (told.fix.empty())
    told.fix =
        "look at the network between these machines, and name the interface for tensors "
        "(cluster.data_interface), then start the job again";
  return told;
}

}  // namespace

void settle_missed_peers(Self self, EpochNumber epoch_number, const Error& error) {
  auto& state = self->state;
  if (epoch_number != state.configuration.epoch_number) return;
  // While a decided step is finished a loss is dealt with already.
  if (state.regrouping && state.phase != Phase::applying) return;
  if (state.phase == Phase::ending || state.phase == Phase::ended) return;
  // Who lost its network may name many others before any of them names it: what counts is with how
  // many it lost its connection, whoever noticed.
  std::map<NodeId, std::set<NodeId>> apart;
  for (const auto& [peer, reporters] : state.missed)
    for (const NodeId reporter : reporters) {
      apart[peer].insert(reporter);
      apart[reporter].insert(peer);
    }
  std::vector<std::tuple<std::size_t, std::size_t, NodeId>> missed;
  for (const auto& [node, others] : apart) {
    const auto named = state.missed.find(node);
    if (is_there(state.nodes[node.index()]))
      missed.emplace_back(others.size(), named == state.missed.end() ? 0 : named->second.size(),
                          node);
  }
  const bool explained =
      !state.missed.empty() &&
      std::none_of(state.missed.begin(), state.missed.end(),
                   [&](const auto& entry) { return is_there(state.nodes[entry.first.index()]); });
  if (explained) return;  // Those that were missed are lost, and known to be.
  // Of two that miss each other, either may be at fault: the one goes that can be done without.
  std::sort(missed.rbegin(), missed.rend());
  std::string hindrance;
  for (const auto& [count, named, peer] : missed) {
    NodeEntry& node = state.nodes[peer.index()];
    std::string reporters;
    for (const NodeId reporter : apart[peer])
      reporters += (reporters.empty() ? "" : ", ") + std::to_string(reporter.value);
    const std::string what = describe(node, peer.index()) +
                             " was lost: it answers, but its connections to nodes " + reporters +
                             " broke";
    const auto goes_on = recover(self, peer, what);
    if (goes_on.ok()) {
      node.silent = true;  // Its process may still be there.
      return;
    }
    if (goes_on.error().code != Errc::unavailable) hindrance = goes_on.error().message;
  }
  fail(self, broken_way(state, error, hindrance));
}

}  // namespace troupe::actors
