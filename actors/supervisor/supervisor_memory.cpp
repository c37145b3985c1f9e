#include "actors/supervisor/supervisor_memory.hpp"

#include <chrono>
#include <memory>
#include <utility>

#include "actors/supervisor/supervisor_state.hpp"

namespace troupe::actors {

namespace {

/// What is learned in so short a time is learned anew as soon; some hundred KiB cost nothing so
/// rarely.
constexpr std::chrono::seconds kInterval{10};

}  // namespace

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
  state.for_next_head.due = std::make_shared<const HeadMemory>(
      HeadMemory{state.job.loop.progress().step, learned, state.slow_nodes.notes()});
}

}  // namespace troupe::actors
