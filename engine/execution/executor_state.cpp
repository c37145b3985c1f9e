// What is in host memory for a while: moments but for their update, parameters while others
// compute; how they come to the device and go back.

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

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

/// Whose `state` that is; invalid: nobody's, the device keeps it without a stage.
StageId Executor::keeper_of(GroupId group) const {
  for (const ParameterUse& use : plan_.groups[group.index()].uses)
    if (is_here(use.stage)) return use.stage;
  return {};
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
    GroupState& state = *kept(group).state;
    outcome.moved = comes ? state.fetch_state(device_) : state.offload_state(device_);
    return Done{};
  };
}

/// Whether what actions of this kind take away has left the device. An accelerator's work is
/// launched ahead of what it computes: moments of all groups would be there, or parameters beside
/// what is to have their room.
bool Executor::have_gone(ActionKind kind) const {
  return std::none_of(in_flight_.begin(), in_flight_.end(), [kind](const InFlight& flying) {
    return flying.action != nullptr && flying.action->kind == kind;
  });
}

/// Of stages that give their parameters away; not those that stages of this device share, or that
/// it keeps without a stage. In the first step: what a stage throws is an error of one.
Status Executor::find_host_parameters() {
  const auto gives_away = [&](const auto& entry) { return parameters_in_host(plan_, entry.first); };
  if (!host_parameters_.empty() || std::none_of(stages_.begin(), stages_.end(), gives_away))
    return Done{};
  std::map<StageId, std::vector<models::Parameter*>> parameters;
  ParameterMemory seen, shared;
  const auto see = [&](const std::vector<models::Parameter*>& of) {
    for (const auto* memory : memory_of(of))
      if (!seen.insert(memory).second) shared.insert(memory);
  };
  for (const auto& [id, program] : stages_) {
    auto told = ask(id, "parameters", [&see, &own = parameters[id], &asked = *program] {
      own = asked.parameters();
      see(own);
    });
    if (!told.ok()) return told;
  }
  for (const auto& [group, state] : standby_.groups()) see(state->parameters());
  std::map<StageId, HostParameters> found;
  for (const auto& [id, own] : parameters) {
    if (!parameters_in_host(plan_, id)) continue;
    auto told = ask(id, "parameters", [&found, &shared, &id = id, &own = own] {
      found.try_emplace(id, own, shared);
    });
    if (!told.ok()) return told;
  }
  host_parameters_ = std::move(found);
  return Done{};
}

Executor::Work Executor::move_parameters(const Action& action) {
  const StageId stage = action.stage;
  if (action.kind == ActionKind::fetch_parameters)
    return [this, stage](Outcome& outcome) -> Status {
      outcome.moved = host_parameters_.at(stage).fetch();
      return Done{};
    };
  away_.insert(stage);
  return [this, stage](Outcome& outcome) -> Status {
    const auto moved = host_parameters_.at(stage).evict(device_);
    outcome.moved = moved.copied;
    outcome.taken = moved.taken;
    return Done{};
  };
}

/// Of a step that is given up, whatever became of it. REQUIRES: nothing is under way.
/// Errors: as their work's; the device lacks parameters then.
Status Executor::put_back_parameters() {
  away_.clear();
  for (auto& [id, own] : host_parameters_)
    if (own.is_away())
      launch(nullptr, [&own = own](Outcome&) -> Status {
        own.fetch();
        return Done{};
      });
  if (in_flight_.empty()) return Done{};
  device_.wait();
  Status back = Done{};
  for (const InFlight& fetch : in_flight_)
    if (back.ok() && !fetch.launch->status().ok()) back = fetch.launch->status();
  device_.drop();
  in_flight_.clear();
  return back;
}

/// Of a step that is given up behind COMMIT: a holder must not be left without what an update has
/// made of its moments.
void Executor::put_back_state() {
  for (const GroupId group : fetched_)
    launch(nullptr, [this, group](Outcome& outcome) -> Status {
      turn_to(outcome, {keeper_of(group), "offload_state"});
      kept(group).state->offload_state(device_);
      return Done{};
    });
}

/// Of what is fetched and not back; the copies go nowhere.
Status Executor::forget_state(GroupId group) const {
  return let_go(keeper_of(group), "forget_fetched_state",
                [this, group] { kept(group).state->forget_fetched_state(); });
}

Result<Bytes> Executor::bytes_in_host() {
  Bytes bytes;
  for (const auto& [id, own] : host_parameters_) bytes += own.in_host();
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
    const GroupId group{g};
    if (!moments_in_host(plan_, group)) continue;
    Kept own;
    auto told = ask(keeper_of(group), "state", [&] { own = kept(group); });
    if (told.ok() && own.state != nullptr)
      told =
          ask(keeper_of(group), "optimizer_bytes", [&] { bytes += own.state->optimizer_bytes(); });
    if (!told.ok()) return std::move(told).error();
  }
  return bytes;
}

}  // namespace troupe::engine
