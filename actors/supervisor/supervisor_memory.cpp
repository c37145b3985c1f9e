#include "actors/supervisor/supervisor_memory.hpp"

#include <chrono>
#include <memory>
#include <utility>

#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "scheduler/recovery/layout_choice.hpp"

namespace troupe::actors {

namespace {

/// What is learned in so short a time is learned anew as soon; some hundred KiB cost nothing so
/// rarely.
constexpr std::chrono::seconds kInterval{10};

}  // namespace

NodeChanges node_changes(const SupervisorState& state) {
  NodeChanges changes = state.resources->resume.node_changes;
  changes.count += state.job.members.changes();
  if (state.began) changes.elapsed_ms += milliseconds_between(*state.began, state.last_finish);
  return changes;
}

double quiet_ms(const SupervisorState& state) {
  const NodeChanges changes = node_changes(state);
  return scheduler::expected_quiet_ms(changes.count, changes.elapsed_ms);
}

void remember(SupervisorSelf self) {
  auto& state = self->state;
  if (state.resources->setup.job.cluster.head_timeout_s <= 0) return;  // Nodes wait for no other.
  std::set<NodeId> slow;
  for (const SlowNodeNote& note : state.slow_nodes.notes()) slow.insert(note.node);
  ForNextHead& memory = state.for_next_head;
  if (memory.asked && now(self) - *memory.asked < kInterval && slow == memory.slow) return;
  memory.asked = now(self);
  memory.slow = std::move(slow);
  self->send(state.actors.scheduler, save_atom::value, std::int64_t{kForNextHead});
}

void learned_for_next_head(SupervisorSelf self, const LearnedCosts& learned) {
  auto& state = self->state;
  state.for_next_head.due = std::make_shared<const HeadMemory>(HeadMemory{
      state.job.loop.progress().step, learned, state.slow_nodes.notes(), node_changes(state)});
}

}  // namespace troupe::actors
