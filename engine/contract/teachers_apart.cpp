#include "engine/contract/teachers_apart.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "scheduler/iteration/stage_graph.hpp"

namespace troupe::engine {

namespace {

/// In the order of the model, as groups have to be.
std::vector<ModuleGroup> groups_apart(const ParallelPlan& plan) {
  std::vector<ModuleGroup> groups;
  for (const ModuleGroup& group : plan.module_groups) {
    std::vector<ModuleId> others, teachers;
    for (const ModuleId module : group.modules)
      (plan.model.at(module).kind == ModuleKind::teacher ? teachers : others).push_back(module);
    for (auto& modules : {others, teachers})
      if (!modules.empty()) groups.push_back({scheduler::group_name(plan.model, modules), modules});
  }
  std::ranges::sort(groups, {}, &ModuleGroup::modules);
  return groups;
}

}  // namespace

ParallelPlan with_teachers_apart(const ParallelPlan& plan) {
  ParallelPlan apart = plan;
  apart.module_groups = groups_apart(plan);
  apart.replicas.clear();
  apart.stages.clear();
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const PipelineId pipeline{p};
    apart.at(pipeline).replicas.clear();
    for (std::size_t g = 0; g < apart.module_groups.size(); ++g) {
      const ReplicaId id{apart.replicas.size()};
      Replica replica{ModuleGroupId{g}, pipeline, {}};
      for (const StageId from : plan.stages_of(pipeline)) {
        Stage stage = plan.at(from);
        if (apart.group_of(stage.runs.front().module) != replica.group) continue;
        stage.replica = id;
        replica.stages.emplace_back(apart.stages.size());
        apart.stages.push_back(std::move(stage));
      }
      apart.at(pipeline).replicas.push_back(id);
      apart.replicas.push_back(std::move(replica));
    }
  }
  scheduler::complete(apart);
  return apart;
}

}  // namespace troupe::engine
