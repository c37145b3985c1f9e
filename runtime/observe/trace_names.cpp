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
    case ActionKind::offload: return "to host";
    case ActionKind::fetch: return "from host";
    case ActionKind::evict_parameters: return "parameters to host";
    case ActionKind::fetch_parameters: return "parameters from host";
    case ActionKind::fetch_state: return "moments from host";
    case ActionKind::offload_state: return "moments to host";
    case ActionKind::send_gradient: return "send gradient";
    case ActionKind::receive_gradient: return "receive gradient";
    case ActionKind::relay: return "relay rows";
    case ActionKind::relay_gradient: return "relay gradient";
    case ActionKind::send_content: return "send content";
    case ActionKind::receive_content: return "receive content";
    case ActionKind::reduce_send: return "send to reduce";
    case ActionKind::reduce_partial: return "reduce on node";
    case ActionKind::reduce_relay: return "relay reduced";
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

/// All that holders of a group send to each other, each pair of actions of two holders once.
std::vector<SumLink> links_of(const ParallelPlan& plan, GroupId id) {
  const auto& holders = plan.groups[id.index()].holders;
  std::vector<SumLink> links;
  if (holders.size() > kSumHoldersShown) return links;
  const GroupSum sum = plan_sum(plan, id);
  for (const SumRole& role : sum.roles)
    for (const ActionKind kind : kSumActions)
      for (const SumTransfer& to : sum.sent(role.place, kind))
        links.push_back({kind, holders[static_cast<std::size_t>(role.place)], to.kind,
                         holders[static_cast<std::size_t>(to.holder)]});
  std::sort(links.begin(), links.end());
  links.erase(std::unique(links.begin(), links.end()), links.end());
  return links;
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
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    names.groups.push_back(plan.groups[g].name);
    names.group_links.push_back(links_of(plan, GroupId{g}));
  }
  return names;
}

std::vector<SumEnd> sum_ends(const TraceNames& names, const TraceEvent& event) {
  const Action& action = event.action;
  if (!action.group.valid() || action.group.index() >= names.group_links.size()) return {};
  std::vector<SumEnd> ends;
  for (const SumLink& link : names.group_links[action.group.index()]) {
    if (link.from == event.device && link.sends == action.kind) ends.push_back({link, true});
    if (link.to == event.device && link.takes == action.kind) ends.push_back({link, false});
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
