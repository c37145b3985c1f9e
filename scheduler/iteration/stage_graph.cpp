#include "scheduler/iteration/stage_graph.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <string>
#include <utility>

#include "runtime/vocabulary/gradient_sum.hpp"

namespace troupe::scheduler {

namespace {

/// Stage of every layer: [module][layer]; `kNone` where no stage has it.
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
using StageOfLayer = std::vector<std::vector<std::size_t>>;

StageOfLayer stage_of_layer(const ModelGraph& model, std::span<const Stage> stages) {
  StageOfLayer stage_of(model.modules.size());
  for (std::size_t m = 0; m < model.modules.size(); ++m)
    stage_of[m].assign(model.modules[m].layers.size(), kNone);
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
  const auto add = [&](std::size_t from, std::size_t to, ModuleId module, bool boundary,
                       std::size_t layers) {
    if (from != to && from != kNone && to != kNone)
      edges.push_back({from, to, module, boundary, static_cast<std::int32_t>(layers)});
  };
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const auto& own = stage_of[m];
    for (std::size_t layer = 1; layer < own.size(); ++layer)
      add(own[layer - 1], own[layer], ModuleId{m}, false, layer);
    for (const ModuleId next : model.modules[m].next)
      add(own.back(),
          stage_of[next.index()][static_cast<std::size_t>(entry_layer(model, ModuleId{m}, next))],
          ModuleId{m}, true, own.size());
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

StageId stage_with(const ParallelPlan& plan, ReplicaId replica, LayerId layer) {
  for (const StageId stage : plan.at(replica).stages)
    for (const LayerRun& run : plan.at(stage).runs)
      if (run.module == layer.module && run.layers.begin <= layer.layer &&
          layer.layer < run.layers.end)
        return stage;
  return {};
}

std::vector<PlanEdge> pipeline_edges(const ParallelPlan& plan, PipelineId pipeline) {
  std::vector<PlanEdge> edges;
  for (const ReplicaId id : plan.at(pipeline).replicas) {
    const std::size_t first = plan.at(id).stages.front().index();
    const auto own = std::span(plan.stages).subspan(first, plan.at(id).stages.size());
    for (const StageEdge& edge : stage_edges(plan.model, own))
      edges.push_back({StageId{first + edge.from}, StageId{first + edge.to}});
    for (const ModuleId module : plan.module_groups[plan.at(id).group.index()].modules) {
      const auto& spec = plan.model.at(module);
      const LayerId last{module, static_cast<std::int32_t>(spec.layers.size()) - 1};
      for (const ModuleId next : spec.next) {
        if (plan.group_of(next) == plan.at(id).group) continue;  // Inside the replica, above.
        for (const ReplicaId other : plan.at(pipeline).replicas)
          if (const StageId to =
                  stage_with(plan, other, {next, entry_layer(plan.model, module, next)});
              to.valid())
            edges.push_back({stage_with(plan, id, last), to});
      }
    }
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

std::string group_name(const ModelGraph& model, const std::vector<ModuleId>& modules) {
  std::string name;
  for (const ModuleId module : modules)
    if (model.at(module).kind != ModuleKind::projector && module != model.llm())
      name += (name.empty() ? "" : "+") + model.at(module).name;
  return name.empty() ? model.at(modules.front()).name : name;
}

std::vector<ModuleGroup> encoders_and_llm(const ModelGraph& model) {
  std::vector<ModuleId> encoders;
  for (std::size_t m = 0; m < model.llm().index(); ++m) encoders.push_back(ModuleId{m});
  std::vector<ModuleGroup> groups;
  if (!encoders.empty()) groups.push_back({group_name(model, encoders), encoders});
  groups.push_back({group_name(model, {model.llm()}), {model.llm()}});
  return groups;
}

std::vector<std::vector<ModuleId>> joined_encoders(const ModelGraph& model) {
  std::vector<std::size_t> component(model.modules.size());
  std::iota(component.begin(), component.end(), std::size_t{0});
  for (std::size_t m = 0; m < model.modules.size(); ++m)
    for (const ModuleId next : model.modules[m].next)
      if (next != model.llm()) {
        const auto from = component[next.index()], to = component[m];
        std::replace(component.begin(), component.end(), from, to);
      }
  std::map<std::size_t, std::size_t> place;  // Of components, in the order in which they appear.
  std::vector<std::vector<ModuleId>> joined;
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    if (ModuleId{m} == model.llm()) continue;
    const auto [known, fresh] = place.try_emplace(component[m], joined.size());
    if (fresh) joined.emplace_back();
    joined[known->second].push_back(ModuleId{m});
  }
  return joined;
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

std::vector<DeviceId> list_leads(const ParallelPlan& plan) {
  const bool is_alone = std::ranges::all_of(
      plan.stages, [](const Stage& stage) { return stage.devices.size() == 1; });
  if (is_alone) return {};
  // What a device runs: its stages, and what it alone stands by for.
  std::vector<std::vector<std::int64_t>> runs(plan.devices.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const DeviceId device : plan.stages[s].devices)
      runs[device.index()].push_back(static_cast<std::int64_t>(s));
  for (std::size_t d = 0; d < runs.size(); ++d)
    if (runs[d].empty()) runs[d].push_back(-1 - static_cast<std::int64_t>(d));
  for (const Standby& standby : plan.standbys)
    runs[standby.device.index()].push_back(-1 - static_cast<std::int64_t>(standby.device.index()));
  std::map<std::vector<std::int64_t>, DeviceId> first;
  std::vector<DeviceId> leads;
  for (std::size_t d = 0; d < runs.size(); ++d)
    leads.push_back(first.try_emplace(std::move(runs[d]), DeviceId{d}).first->second);
  return leads;
}

std::vector<Parallelism> module_degrees(const ParallelPlan& plan) {
  std::vector<Parallelism> degrees(plan.model.modules.size());
  for (auto stage = plan.stages.rbegin(); stage != plan.stages.rend(); ++stage)
    for (const LayerRun& run : stage->runs) degrees[run.module.index()] = stage->grid;
  return degrees;
}

void complete(ParallelPlan& plan) {
  plan.groups = parameter_groups(plan);
  plan.leads = list_leads(plan);
}

std::optional<DeviceId> crossed_rows(const ParallelPlan& plan) {
  for (const ParameterGroup& group : plan.groups) {
    std::map<DeviceId, std::span<const DeviceId>> row_of;
    for (const ParameterUse& use : group.uses)
      for (std::int32_t cp = 0; cp < plan.at(use.stage).grid.cp; ++cp) {
        const auto row = plan.at(use.stage).row(cp);
        for (const DeviceId device : row)
          if (const auto [known, fresh] = row_of.try_emplace(device, row);
              !fresh && !std::ranges::equal(known->second, row))
            return device;
      }
  }
  return std::nullopt;
}

namespace {

/// Behind the holders that have a use.
void add_standby_holders(const ParallelPlan& plan, std::vector<ParameterGroup>& groups) {
  if (plan.standbys.empty()) return;
  using Unit = std::pair<LayerId, std::string>;  // A layer, or the name of a tied parameter.
  std::map<Unit, std::size_t> places;
  for (std::size_t g = 0; g < groups.size(); ++g)
    places[groups[g].tied ? Unit{{}, groups[g].name} : Unit{groups[g].uses.front().layer, {}}] = g;
  for (const Standby& standby : plan.standbys)
    if (const auto place =
            places.find(standby.tied.empty() ? Unit{standby.layer, {}} : Unit{{}, standby.tied});
        place != places.end()) {
      groups[place->second].holders.push_back(standby.device);
      ++groups[place->second].standbys;
    }
}

}  // namespace

std::vector<ParameterGroup> parameter_groups(const ParallelPlan& plan) {
  // Stages stand by (pipeline, topological place), runs by layer: this walk yields their order.
  std::vector<std::vector<std::vector<ParameterUse>>> uses(plan.model.modules.size());
  for (std::size_t m = 0; m < uses.size(); ++m) uses[m].resize(plan.model.modules[m].layers.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const auto& run : plan.stages[s].runs)
      for (auto layer = run.layers.begin; layer < run.layers.end; ++layer)
        uses[run.module.index()][static_cast<std::size_t>(layer)].push_back(
            {StageId{s}, {run.module, layer}});

  std::vector<ParameterGroup> groups;
  for (std::size_t m = 0; m < plan.model.modules.size(); ++m) {
    const auto& module = plan.model.modules[m];
    if (module.freeze) continue;
    for (std::size_t l = 0; l < module.layers.size(); ++l) {
      const LayerId id{ModuleId{m}, static_cast<std::int32_t>(l)};
      if (module.layers[l].parameter_elements > 0)
        groups.push_back({module.layers[l].name,
                          false,
                          module.layers[l].parameter_elements,
                          uses[m][l],
                          {},
                          0,
                          module.layers[l].splits});
      for (const auto& tied : plan.model.tied) {
        // A frozen module's layer uses the tensor but does not train it.
        const auto first = std::find_if(tied.layers.begin(), tied.layers.end(), [&](LayerId user) {
          return !plan.model.at(user.module).freeze;
        });
        if (first == tied.layers.end() || *first != id) continue;
        ParameterGroup group{tied.name, true, tied.parameter_elements, {}, {}, 0, tied.splits};
        for (std::size_t s = 0; s < plan.stages.size(); ++s)
          for (const auto& run : plan.stages[s].runs)
            for (auto layer = run.layers.begin; layer < run.layers.end; ++layer)
              if (is_user(tied, {run.module, layer}))
                group.uses.push_back({StageId{s}, {run.module, layer}});
        groups.push_back(std::move(group));
      }
    }
  }
  for (ParameterGroup& group : groups)
    for (const ParameterUse& use : group.uses)
      for (std::int32_t cp = 0; cp < plan.at(use.stage).grid.cp; ++cp) {
        const DeviceId holder = plan.at(use.stage).row(cp).front();
        if (std::find(group.holders.begin(), group.holders.end(), holder) == group.holders.end())
          group.holders.push_back(holder);
      }
  add_standby_holders(plan, groups);
  for (std::size_t g = 0; g < groups.size(); ++g)
    groups[g].order = sum_order(plan, groups[g], GroupId{g});
  return groups;
}

}  // namespace troupe::scheduler
