#include "actors/supervisor/supervisor_processes.hpp"

#include <algorithm>
#include <optional>

#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_last_save.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_state.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = JobPhase;
using NodePhase = Member::Phase;

/// Whose process it was. One on another machine, or in another container, may have the same number:
/// the head's own is meant where it has come, and nobody while one of these is awaited.
std::optional<NodeId> node_of(const SupervisorState& state, std::int32_t pid) {
  std::optional<NodeId> found;
  bool is_awaited = false;
  for (std::size_t i = 0; i < state.job.members.size(); ++i) {
    const NodeId id{i};
    const Member& node = state.job.members[id];
    if (is_own_place(state, id) && node.phase == NodePhase::missing) is_awaited = true;
    if (node.pid != pid) continue;
    if (state.links[i].is_heads_own) return id;
    if (!found) found = id;
  }
  return is_awaited ? std::nullopt : found;
}

}  // namespace

bool is_own_process(const SupervisorState& state, NodeId node) {
  return is_own_place(state, node) && state.links[node.index()].is_heads_own;
}

void process_exited(Self self, std::int32_t pid, const std::string& how, std::int32_t signal) {
  auto& state = self->state;
  if (const auto id = node_of(state, pid)) {
    const Member& node = state.job.members[*id];
    if (node.phase == NodePhase::gone) {  // The job goes on, or ends, without it.
      if (node.how_ended.empty() && state.job.phase() != Phase::ending)
        state.resources->logger.info(describe(state.job.members, *id) + " " + how);
      state.job.members.ended(*id, how);
      if (const auto again = state.failures.explain(*id, how, signal)) save_and_fail(self, *again);
      return;
    }
    state.job.members.ended(*id, how);
    return node_lost(self, *id,
                     is_own_doing(signal) ? FailureKind::crashed : FailureKind::unexplained);
  }
  const std::string what =
      "a local node process (pid " + std::to_string(pid) + ") " + how + " before it joined";
  if (state.job.phase() == Phase::joining)
    return fail(self, {Errc::internal, what, {}, "its own message stands above"});
  give_up_own_places(state, what);
}

void device_lost(Self self, NodeId node, const Error& error) {
  auto& state = self->state;
  state.resources->logger.warning(describe(state.job.members, node) + ": " + to_string(error));
  state.job.members.ended(node, error.message);
  node_lost(self, node, FailureKind::device);
  const bool is_untold = std::ranges::any_of(
      state.configuration.nodes, [node](const NodeReady& one) { return one.node == node; });
  if (is_untold) let_go_of_node(self, node, error.message);
  state.job.members.fell_silent(node);  // Its process is still there.
}

}  // namespace troupe::actors
