// Moments that are in host memory but for their update: how they come to the device and go back.

#include <algorithm>

#include "engine/execution/executor.hpp"
#include "runtime/vocabulary/host_state.hpp"

namespace troupe::engine {

/// The first use on this device has what all of them share.
Executor::Kept Executor::kept(GroupId group) const {
  const auto& uses = plan_.groups[group.index()].uses;
  for (std::size_t i = 0; i < uses.size(); ++i)
    if (is_here(uses[i].stage)) return {&stages_.at(uses[i].stage)->state(group, uses[i].layer), i};
  const auto standby = standby_.groups().find(group);
  return {standby == standby_.groups().end() ? nullptr : standby->second.get(), uses.size()};
}

/// Nothing moves where a step is discarded.
Executor::Work Executor::move_state(const Action& action) {
  if (!decision_->commit) return [](Outcome&) -> Status { return Done{}; };
  const GroupId group = action.group;
  const bool comes = action.kind == ActionKind::fetch_state;
  if (comes)
    fetched_.push_back(group);
  else
    std::erase(fetched_, group);
  return [this, group, comes](Outcome& outcome) -> Status {
    ParameterShard& state = *kept(group).state;
    outcome.moved = comes ? state.fetch_state(device_) : state.offload_state(device_);
    return Done{};
  };
}

/// Whether moments that went before have left the device. An accelerator's work is launched ahead
/// of what it computes: those of all groups would be there.
bool Executor::have_gone() const {
  return std::none_of(in_flight_.begin(), in_flight_.end(), [](const InFlight& flying) {
    return flying.action != nullptr && flying.action->kind == ActionKind::offload_state;
  });
}

/// Of a step that is given up behind COMMIT: a holder must not be left without what an update has
/// made of its moments.
void Executor::put_back_state() {
  for (const GroupId group : fetched_)
    launch(nullptr, [this, group](Outcome&) -> Status {
      kept(group).state->offload_state(device_);
      return Done{};
    });
}

Bytes Executor::bytes_in_host() const {
  Bytes bytes;
  for (std::size_t g = 0; g < plan_.groups.size(); ++g)
    if (moments_in_host(plan_, GroupId{g}))
      if (const Kept own = kept(GroupId{g}); own.state != nullptr)
        bytes += own.state->optimizer_bytes();
  return bytes;
}

}  // namespace troupe::engine
