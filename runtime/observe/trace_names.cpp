#include "runtime/observe/trace_names.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/vocabulary/gradient_sum.hpp"

namespace troupe::observe {

namespace {

ModuleId main_module(const Stage& stage) {
  return stage.runs.empty() ? ModuleId{} : stage.runs.front().module;
}

std::string name_or_number(const std::vector<std::string>& names, std::int32_t index,
                           std::string_view kind) {
  if (index >= 0 && static_cast<std::size_t>(index) < names.size())
    return names[static_cast<std::size_t>(index)];
  return std::string(kind) + std::to_string(index);
}

// What a slice is called between its stage and its microbatch.
std::string_view short_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward: return "F";
    case ActionKind::backward: return "B";
    case ActionKind::backward_input: return "I";
    case ActionKind::backward_weight: return "W";
    case ActionKind::recompute: return "R";
    case ActionKind::send_gradient: return "send gradient";
    case ActionKind::receive_gradient: return "receive gradient";
    case ActionKind::send_content: return "send content";
    case ActionKind::receive_content: return "receive content";
    case ActionKind::reduce_send: return "send to reduce";
    case ActionKind::reduce_receive: return "receive reduced";
    case ActionKind::optimizer_step: return "optimizer";
    default: return to_string(kind);
  }
}

/// Which of the replicas of its group a replica is, where its pipeline has several.
std::optional<std::size_t> number_in_group(const ParallelPlan& plan, ReplicaId id) {
  std::size_t before = 0, all = 0;
  for (const ReplicaId other : plan.at(plan.at(id).pipeline).replicas) {
    if (plan.at(other).group != plan.at(id).group) continue;
    ++all;
    if (other < id) ++before;
  }
  return all > 1 ? std::optional(before) : std::nullopt;
}

}  // namespace

std::vector<std::string> stage_names(const ParallelPlan& plan) {
  std::map<std::pair<ReplicaId, ModuleId>, int> counts, next;
  for (const auto& stage : plan.stages) ++counts[{stage.replica, main_module(stage)}];
  std::vector<std::string> names;
  for (const auto& stage : plan.stages) {
    const auto module = main_module(stage);
    const std::pair key{stage.replica, module};
    std::string name = module.valid() ? plan.model.at(module).name : "empty";
    if (const auto number = number_in_group(plan, stage.replica))
      name += "." + std::to_string(*number);
    if (counts[key] > 1) name += ".stage" + std::to_string(next[key]++);
    names.push_back(std::move(name));
  }
  return names;
}

TraceNames trace_names(const ParallelPlan& plan) {
  TraceNames names;
  names.devices = plan.devices;
  names.stages = stage_names(plan);
  for (const auto& group : plan.groups) {
    names.groups.push_back(group.name);
    auto& owners = names.group_owners.emplace_back();
    for (const SumChunk& chunk : sum_chunks(group, GroupId{names.group_devices.size()}))
      owners.push_back(group.holders[static_cast<std::size_t>(chunk.owner)]);
    names.group_devices.push_back(group.holders);
    names.group_users.push_back(static_cast<std::size_t>(group.users()));
  }
  return names;
}

std::vector<SumEnd> sum_ends(const TraceNames& names, const TraceEvent& event) {
  const Action& action = event.action;
  const DeviceId self = event.device;
  if (!action.group.valid() || action.group.index() >= names.group_devices.size()) return {};
  const auto& holders = names.group_devices[action.group.index()];
  const auto& owners = names.group_owners[action.group.index()];
  if (holders.size() > kSumHoldersShown) return {};
  std::vector<SumEnd> ends;
  if (action.kind == ActionKind::reduce) {
    for (std::size_t h = 0; h < holders.size(); ++h) {
      if (holders[h] == self) continue;
      if (h < names.group_users[action.group.index()])
        ends.push_back({false, false, holders[h], self});
      ends.push_back({true, true, self, holders[h]});
    }
  }
  for (const DeviceId owner : owners) {
    if (owner == self) continue;
    if (action.kind == ActionKind::reduce_send) ends.push_back({false, true, self, owner});
    if (action.kind == ActionKind::reduce_receive) ends.push_back({true, false, owner, self});
  }
  return ends;
}

std::string event_name(const TraceNames& names, const Action& action) {
  std::string name;
  if (action.group.valid())
    return std::string(short_name(action.kind)) + " " +
           name_or_number(names.groups, action.group.value, "group");
  if (action.stage.valid()) name = name_or_number(names.stages, action.stage.value, "stage") + " ";
  if (action.kind == ActionKind::optimizer_step && !action.stage.valid()) name = "standby ";
  name += short_name(action.kind);
  if (action.microbatch.valid()) name += " mb" + std::to_string(action.microbatch.value);
  // Most microbatches have one part; its number would only be noise.
  if (action.part.value > 0) name += "." + std::to_string(action.part.value);
  return name;
}

}  // namespace troupe::observe
