#include "scheduler/iteration/update_actions.hpp"

#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "runtime/vocabulary/host_state.hpp"

namespace troupe::scheduler {

namespace {

/// What one device updates for a stage, or without one.
struct Update {
  std::vector<GroupId> from_host;  ///< In their order.
  bool others = false;             ///< Groups whose moments are on the device.
};

/// By device that leads, then by stage; the invalid one, which means standby, is kept apart because
/// it comes last.
struct Updates {
  std::map<std::pair<DeviceId, StageId>, Update> of_stages;
  std::map<DeviceId, Update> on_standby;
};

Updates find_updates(const ParallelPlan& plan) {
  Updates found;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const ParameterGroup& group = plan.groups[g];
    const bool from_host = moments_in_host(plan, GroupId{g});
    std::set<DeviceId> seen;
    for (const ParameterUse& use : group.uses)
      for (const DeviceId lead : plan.leads_of(use.stage)) {
        if (!from_host)
          found.of_stages[{lead, use.stage}].others = true;
        else if (seen.insert(lead).second)
          found.of_stages[{lead, use.stage}].from_host.push_back(GroupId{g});
      }
    for (auto h = static_cast<std::size_t>(group.users()); h < group.holders.size(); ++h) {
      Update& update = found.on_standby[group.holders[h]];
      if (from_host)
        update.from_host.push_back(GroupId{g});
      else
        update.others = true;
    }
  }
  return found;
}

void append(const Update& update, StageId stage, std::vector<Action>& list) {
  Action action;
  action.stage = stage;
  for (const GroupId group : update.from_host) {
    action.group = group;
    for (const ActionKind kind :
         {ActionKind::fetch_state, ActionKind::optimizer_step, ActionKind::offload_state}) {
      action.kind = kind;
      list.push_back(action);
    }
  }
  if (!update.others) return;
  action.group = GroupId{};
  action.kind = ActionKind::optimizer_step;
  list.push_back(action);
}

}  // namespace

void append_updates(const ParallelPlan& plan, std::vector<std::vector<Action>>& actions) {
  const Updates updates = find_updates(plan);
  for (const auto& [place, update] : updates.of_stages)
    append(update, place.second, actions[place.first.index()]);
  for (const auto& [device, update] : updates.on_standby)
    append(update, StageId{}, actions[device.index()]);
}

}  // namespace troupe::scheduler
