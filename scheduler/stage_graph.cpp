#include "scheduler/stage_graph.hpp"

#include <algorithm>
#include <functional>
#include <queue>

namespace troupe::scheduler {

namespace {

/// Stage of every layer: [module][layer].
using StageOfLayer = std::vector<std::vector<std::size_t>>;

StageOfLayer stage_of_layer(const ModelGraph& model, std::span<const Stage> stages) {
  StageOfLayer stage_of(model.modules.size());
  for (std::size_t m = 0; m < model.modules.size(); ++m)
    stage_of[m].resize(model.modules[m].layers.size());
  for (std::size_t s = 0; s < stages.size(); ++s)
    for (const auto& run : stages[s].runs)
      for (auto layer = run.layers.begin; layer < run.layers.end; ++layer)
        stage_of[run.module.index()][static_cast<std::size_t>(layer)] = s;
  return stage_of;
}

bool is_user(const TiedParameter& tied, LayerId layer) {
  return std::find(tied.layers.begin(), tied.layers.end(), layer) != tied.layers.end();
}

}  // namespace

std::vector<ModuleId> predecessors(const ModelGraph& model, ModuleId module) {
  std::vector<ModuleId> before;
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const auto& next = model.modules[m].next;
    if (std::find(next.begin(), next.end(), module) != next.end()) before.push_back(ModuleId{m});
  }
  return before;
}

std::vector<StageEdge> stage_edges(const ModelGraph& model, std::span<const Stage> stages) {
  const StageOfLayer stage_of = stage_of_layer(model, stages);
  std::vector<StageEdge> edges;
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const auto& own = stage_of[m];
    for (std::size_t layer = 1; layer < own.size(); ++layer)
      if (own[layer - 1] != own[layer])
        edges.push_back(
            {own[layer - 1], own[layer], ModuleId{m}, false, static_cast<std::int32_t>(layer)});
    for (const ModuleId next : model.modules[m].next)
      if (own.back() != stage_of[next.index()].front())
        edges.push_back({own.back(), stage_of[next.index()].front(), ModuleId{m}, true,
                         static_cast<std::int32_t>(own.size())});
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

std::vector<std::size_t> topological_order(const ModelGraph& model, std::span<const Stage> stages) {
  const auto edges = stage_edges(model, stages);
  std::vector<std::size_t> waits(stages.size());
  std::vector<std::vector<std::size_t>> feeds(stages.size());
  for (const auto& edge : edges) {
    ++waits[edge.to];
    feeds[edge.from].push_back(edge.to);
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t s = 0; s < stages.size(); ++s)
    if (waits[s] == 0) ready.push(s);
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    const std::size_t s = ready.top();
    ready.pop();
    order.push_back(s);
    for (const auto to : feeds[s])
      if (--waits[to] == 0) ready.push(to);
  }
  return order;
}

std::vector<ParameterGroup> parameter_groups(const ParallelPlan& plan) {
  // Stages stand by (pipeline, topological place), runs by layer: this walk yields holder order.
  std::vector<std::vector<std::vector<Holder>>> holders(plan.model.modules.size());
  for (std::size_t m = 0; m < holders.size(); ++m)
    holders[m].resize(plan.model.modules[m].layers.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const auto& run : plan.stages[s].runs)
      for (auto layer = run.layers.begin; layer < run.layers.end; ++layer)
        holders[run.module.index()][static_cast<std::size_t>(layer)].push_back(
            {StageId{s}, {run.module, layer}});

  std::vector<ParameterGroup> groups;
  for (std::size_t m = 0; m < plan.model.modules.size(); ++m) {
    const auto& module = plan.model.modules[m];
    if (module.freeze) continue;
    for (std::size_t l = 0; l < module.layers.size(); ++l) {
      const LayerId id{ModuleId{m}, static_cast<std::int32_t>(l)};
      if (module.layers[l].parameter_elements > 0)
        groups.push_back(
            {module.layers[l].name, false, module.layers[l].parameter_elements, holders[m][l]});
      for (const auto& tied : plan.model.tied) {
        // A frozen module's layer uses the tensor but does not train it.
        const auto first = std::find_if(tied.layers.begin(), tied.layers.end(), [&](LayerId user) {
          return !plan.model.at(user.module).freeze;
        });
        if (first == tied.layers.end() || *first != id) continue;
        ParameterGroup group{tied.name, true, tied.parameter_elements, {}};
        for (std::size_t s = 0; s < plan.stages.size(); ++s)
          for (const auto& run : plan.stages[s].runs)
            for (auto layer = run.layers.begin; layer < run.layers.end; ++layer)
              if (is_user(tied, {run.module, layer}))
                group.holders.push_back({StageId{s}, {run.module, layer}});
        groups.push_back(std::move(group));
      }
    }
  }
  return groups;
}

std::vector<StageId> holding_stages(const ParameterGroup& group) {
  std::vector<StageId> stages;
  for (const auto& holder : group.holders)
    if (stages.empty() || stages.back() != holder.stage) stages.push_back(holder.stage);
  return stages;
}

}  // namespace troupe::scheduler
