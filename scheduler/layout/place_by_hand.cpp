#include "scheduler/layout/place_by_hand.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/layout/layout_problems.hpp"
#include "scheduler/layout/place_table.hpp"

namespace troupe::scheduler {

namespace {

Status check_devices_used(const ParallelPlan& plan, const std::string& key) {
  std::vector<bool> used(plan.devices.size());
  for (const auto& stage : plan.stages)
    for (const DeviceId device : stage.devices) used[device.index()] = true;
  for (const auto& standby : plan.standbys) used[standby.device.index()] = true;
  for (std::size_t d = 0; d < used.size(); ++d) {
    if (used[d]) continue;
    return wrong_layout(key,
                        "device " + std::to_string(plan.devices[d].local_index) + " of node " +
                            std::to_string(plan.devices[d].node.value) +
                            " has no stage and would idle",
                        "give it layers, or lower cluster.local_nodes or cluster.devices_per_node");
  }
  return Done{};
}

Status check_cluster(const ModelGraph& model, const ClusterShape& cluster) {
  if (cluster.nodes < 1 || cluster.devices_per_node < 1) {
    return wrong_layout("cluster",
                        "a cluster of " + counted(cluster.nodes, "node") + " with " +
                            counted(cluster.devices_per_node, "device") +
                            " each cannot hold a model",
                        "use at least one node with one device");
  }
  if (model.modules.empty())
    return wrong_layout("modules", "the job has no module",
                        "add `[modules.llm]` with kind = \"llm\"");
  for (const auto& module : model.modules)
    if (module.layers.empty())
      return wrong_layout("modules." + module.name, "the module has no layers",
                          "give it at least one");
  return Done{};
}

/// Adds the stages of one group as a replica. Takes them out of `stages`.
void add_replica(ModuleGroupId group, PipelineId pipeline, std::vector<Stage>& stages,
                 ParallelPlan& plan) {
  const ReplicaId id{plan.replicas.size()};
  Replica replica{group, pipeline, {}};
  for (Stage& stage : stages) {
    if (stage.runs.empty() || plan.group_of(stage.runs.front().module) != group) continue;
    stage.replica = id;
    replica.stages.push_back(StageId{plan.stages.size()});
    plan.stages.push_back(std::exchange(stage, {}));
  }
  plan.replicas.push_back(std::move(replica));
  plan.at(pipeline).replicas.push_back(id);
}

struct Placement {
  ParallelPlan plan;  ///< Complete only where there are no problems.
  std::vector<Error> problems;
};

/// Pipelines of one replica per group.
void place_pipelines(const HandLayout& layout, const ClusterShape& cluster, Placement& placement) {
  ParallelPlan& plan = placement.plan;
  plan.module_groups = encoders_and_llm(plan.model);
  std::vector<ModuleId> all;
  for (std::size_t m = 0; m < plan.model.modules.size(); ++m) all.push_back(ModuleId{m});
  for (std::size_t p = 0; p < layout.pipelines.size(); ++p) {
    const std::string number = std::to_string(p);
    auto stages = place_table(
        plan.model, cluster,
        {"parallel.pipelines[" + number + "]", "pipeline " + number, layout.pipelines[p], all});
    if (!stages.ok()) {
      placement.problems.push_back(stages.error());
      continue;
    }
    const PipelineId pipeline{plan.pipelines.size()};
    plan.pipelines.emplace_back();
    for (std::size_t g = 0; g < plan.module_groups.size(); ++g)
      add_replica(ModuleGroupId{g}, pipeline, stages.value(), plan);
  }
}

/// The modules that a replica's `modules` names, and projectors that go along: those that no table
/// names and that stand behind one of its encoders. Ascending.
std::vector<ModuleId> modules_of(const ModelGraph& model, const HandReplica& replica,
                                 const std::set<std::string>& named) {
  std::vector<ModuleId> modules;
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const ModuleId module{m};
    const std::string& name = model.at(module).name;
    const auto is_own = [&](ModuleId id) {
      return std::find(modules.begin(), modules.end(), id) != modules.end();
    };
    const auto before = predecessors(model, module);
    const bool goes_along = model.at(module).kind == ModuleKind::projector &&
                            !named.contains(name) &&
                            std::any_of(before.begin(), before.end(), is_own);
    if (goes_along ||
        std::find(replica.modules.begin(), replica.modules.end(), name) != replica.modules.end())
      modules.push_back(module);
  }
  return modules;
}

/// The groups that the tables speak of, in model order, the llm's last; each module in one.
Result<std::vector<ModuleGroup>> groups_of(const ModelGraph& model,
                                           const std::vector<HandReplica>& replicas,
                                           const std::vector<std::vector<ModuleId>>& modules) {
  std::vector<ModuleGroup> groups;
  std::vector<std::size_t> owner(model.modules.size(), replicas.size());
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    const std::string where = "parallel.replicas[" + std::to_string(r) + "].modules";
    if (modules[r].empty())
      return wrong_layout(where, "the replica is a copy of no module", "name modules of the job");
    if (modules[r].size() > 1 && modules[r].back() == model.llm())
      return wrong_layout(where, "the llm and other modules are in one group",
                          "give the llm replicas of its own: modules = [\"llm\"]");
    bool is_new = true;
    for (const ModuleId module : modules[r]) {
      std::size_t& first = owner[module.index()];
      if (first == replicas.size()) {
        first = r;
      } else {
        is_new = false;
      }
      if (modules[first] != modules[r])
        return wrong_layout(where,
                            model.at(module).name + " is also in the group of parallel.replicas[" +
                                std::to_string(first) + "], which has other modules",
                            "name the same modules in both, or keep them apart in all replicas");
    }
    const bool has_end = std::any_of(modules[r].begin(), modules[r].end(), [&](ModuleId module) {
      return model.at(module).kind != ModuleKind::projector;
    });
    if (!has_end)
      return wrong_layout(where, "a projector cannot have replicas of its own yet",
                          "leave " + model.at(modules[r].front()).name +
                              " out of all lists: it goes along with its encoder");
    if (is_new) groups.push_back({{}, modules[r]});
  }
  for (std::size_t m = 0; m < owner.size(); ++m)
    if (owner[m] == replicas.size())
      return wrong_layout(
          "parallel.replicas", "no replica holds " + model.modules[m].name,
          "add a table [[parallel.replicas]] with modules = [\"" + model.modules[m].name + "\"]");
  std::sort(groups.begin(), groups.end(),
            [](const ModuleGroup& a, const ModuleGroup& b) { return a.modules < b.modules; });
  for (ModuleGroup& group : groups) group.name = group_name(model, group.modules);
  return groups;
}

/// One pipeline of all replicas.
void place_replicas(const HandLayout& layout, const ClusterShape& cluster, Placement& placement) {
  ParallelPlan& plan = placement.plan;
  std::set<std::string> named;
  for (const auto& replica : layout.replicas)
    named.insert(replica.modules.begin(), replica.modules.end());
  std::vector<std::vector<ModuleId>> modules;
  for (const auto& replica : layout.replicas)
    modules.push_back(modules_of(plan.model, replica, named));
  auto groups = groups_of(plan.model, layout.replicas, modules);
  if (!groups.ok()) return placement.problems.push_back(groups.error());
  plan.module_groups = std::move(groups).value();
  plan.pipelines.emplace_back();
  for (std::size_t g = 0; g < plan.module_groups.size(); ++g)
    for (std::size_t r = 0; r < layout.replicas.size(); ++r) {
      if (modules[r] != plan.module_groups[g].modules) continue;
      const std::string number = std::to_string(r);
      auto stages = place_table(plan.model, cluster,
                                {"parallel.replicas[" + number + "]", "replica " + number,
                                 layout.replicas[r].stages, modules[r]});
      if (stages.ok())
        add_replica(ModuleGroupId{g}, PipelineId{0}, stages.value(), plan);
      else
        placement.problems.push_back(stages.error());
    }
}

Placement place(const ModelGraph& model, const HandLayout& layout, const ClusterShape& cluster,
                IdleDevices idle, const Tolerance& tolerance) {
  if (auto status = check_cluster(model, cluster); !status.ok()) return {{}, {status.error()}};
  if (layout.empty()) {
    auto chosen = default_layout(model, cluster);
    if (!chosen.ok()) return {{}, {chosen.error()}};
    return place(model, chosen.value(), cluster, idle, tolerance);
  }
  Placement placement;
  ParallelPlan& plan = placement.plan;
  plan.model = model;
  for (std::int32_t d = 0; d < cluster.devices(); ++d)
    plan.devices.push_back({NodeId{d / cluster.devices_per_node}, d % cluster.devices_per_node});
  const bool by_pipelines = !layout.pipelines.empty();
  if (by_pipelines)
    place_pipelines(layout, cluster, placement);
  else
    place_replicas(layout, cluster, placement);
  if (!placement.problems.empty()) return placement;
  complete(plan);
  const std::string key = by_pipelines ? "parallel.pipelines" : "parallel.replicas";
  if (const auto device = crossed_rows(plan)) {
    const DeviceSlot slot = plan.devices[device->index()];
    placement.problems.push_back(wrong_layout(
        key,
        "device " + std::to_string(slot.local_index) + " of node " +
            std::to_string(slot.node.value) +
            " is in two grids of other devices or degrees that train the same parameters",
        "give both stages the same devices in the same order and the same tp, or devices of "
        "their own"));
    return placement;
  }
  if (tolerance.spares > 0)
    stand_by_on(plan, nodes_without_stage(plan, tolerance.spares), tolerance);
  auto safe = add_standbys(std::move(plan), tolerance);
  if (!safe.ok()) return {{}, {safe.error()}};
  plan = std::move(safe).value();
  if (idle == IdleDevices::left_out) {
    leave_out_idle(plan);
    return placement;
  }
  const auto used = check_devices_used(plan, key);
  if (!used.ok()) placement.problems.push_back(used.error());
  return placement;
}

}  // namespace

std::vector<Error> layout_problems(const ModelGraph& model, const HandLayout& layout,
                                   const ClusterShape& cluster, IdleDevices idle,
                                   const Tolerance& tolerance) {
  return place(model, layout, cluster, idle, tolerance).problems;
}

Result<ParallelPlan> place_by_hand(const ModelGraph& model, const HandLayout& layout,
                                   const ClusterShape& cluster, IdleDevices idle,
                                   const Tolerance& tolerance) {
  Placement placement = place(model, layout, cluster, idle, tolerance);
  if (!placement.problems.empty()) return placement.problems.front();
  return std::move(placement.plan);
}

Result<HandLayout> default_layout(const ModelGraph& model, const ClusterShape& cluster) {
  if (auto status = check_cluster(model, cluster); !status.ok()) return status.error();
  std::vector<LayerId> layers;
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    if (model.modules[m].kind == ModuleKind::projector) continue;
    for (std::size_t l = 0; l < model.modules[m].layers.size(); ++l)
      layers.push_back({ModuleId{m}, static_cast<std::int32_t>(l)});
  }
  const auto devices = static_cast<std::size_t>(cluster.devices());
  if (layers.size() < devices) {
    return wrong_layout("cluster",
                        "one pipeline cannot use " + std::to_string(devices) +
                            " devices: the model has " + std::to_string(layers.size()) +
                            " layers to share out",
                        "use at most " + std::to_string(layers.size()) +
                            " devices, or write several pipelines under [[parallel.pipelines]]");
  }
  HandLayout layout;
  layout.pipelines.emplace_back();
  std::size_t next = 0;
  for (std::size_t d = 0; d < devices; ++d) {
    HandStage stage;
    stage.node = static_cast<std::int32_t>(d) / cluster.devices_per_node;
    stage.device = static_cast<std::int32_t>(d) % cluster.devices_per_node;
    const std::size_t end = next + layers.size() / devices + (d < layers.size() % devices ? 1 : 0);
    for (; next < end; ++next) {
      const auto [module, layer] = layers[next];
      const std::string& name = model.at(module).name;
      if (!stage.runs.empty() && stage.runs.back().module == name)
        ++stage.runs.back().layers->end;
      else
        stage.runs.push_back({name, LayerRange{layer, layer + 1}});
    }
    layout.pipelines.back().push_back(std::move(stage));
  }
  return layout;
}

}  // namespace troupe::scheduler
