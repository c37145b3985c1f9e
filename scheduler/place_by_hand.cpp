#include "scheduler/place_by_hand.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "runtime/vocabulary/nearest_word.hpp"
#include "scheduler/layout_problems.hpp"
#include "scheduler/stage_graph.hpp"

namespace troupe::scheduler {

namespace {

std::string key_of(std::size_t pipeline) {
  return "parallel.pipelines[" + std::to_string(pipeline) + "]";
}

std::string key_of(std::size_t pipeline, std::size_t stage) {
  return key_of(pipeline) + ".stages[" + std::to_string(stage) + "]";
}

Error wrong(std::string where, std::string message, std::string fix) {
  return Error{Errc::invalid_argument, std::move(message), std::move(where), std::move(fix)};
}

std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

/// `0 vision.patch_embed, 1 vision.blocks.0, ...`; long modules are shortened in the middle.
std::string layer_list(const ModuleSpec& module) {
  constexpr std::size_t kShown = 12;
  std::string text;
  const std::size_t count = module.layers.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (count > kShown && i == kShown / 2) {
      text += ", ...";
      i = count - kShown / 2;
    }
    text += (i == 0 ? "" : ", ") + std::to_string(i) + " " + module.layers[i].name;
  }
  return text;
}

/// `2, 5-9`.
std::string ranges(const std::vector<std::size_t>& sorted) {
  std::string text;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(sorted[i]);
    if (last > i) text += "-" + std::to_string(sorted[last]);
    i = last + 1;
  }
  return text;
}

std::string layers_fix(const ModuleSpec& module) {
  return "place each layer of " + module.name + " exactly once; its layers are " +
         layer_list(module);
}

/// A run whose module and layers exist, and the entry it was written in.
struct PlacedRun {
  std::size_t entry = 0;
  LayerRun run;
};

Result<LayerRun> resolve_run(const ModelGraph& model, const HandRun& run,
                             const std::string& where) {
  const ModuleId module = model.find(run.module);
  if (!module.valid()) {
    std::vector<std::string> names;
    for (const auto& spec : model.modules) names.push_back(spec.name);
    const std::string nearest = nearest_word(run.module, names);
    std::string known;
    for (const auto& name : names) known += (known.empty() ? "" : ", ") + name;
    return wrong(where, "no module is called '" + run.module + "'; the job has " + known,
                 nearest.empty() ? "use one of these names" : "did you mean `" + nearest + "`?");
  }
  const auto& spec = model.at(module);
  const auto count = static_cast<std::int32_t>(spec.layers.size());
  const LayerRange layers = run.layers.value_or(LayerRange{0, count});
  if (layers.begin < 0 || layers.end > count || layers.begin >= layers.end) {
    return wrong(where + "." + run.module,
                 "layers [" + std::to_string(layers.begin) + ", " + std::to_string(layers.end) +
                     "] are not a part of [0, " + std::to_string(count) + "], the layers of " +
                     run.module + " (the end is not included)",
                 layers_fix(spec));
  }
  return LayerRun{module, layers};
}

/// Node and device of one entry, checked.
Status check_slot(const HandStage& stage, const ClusterShape& cluster, const std::string& where) {
  if (stage.node < 0 || stage.node >= cluster.nodes) {
    return wrong(where + ".node",
                 "there is no node " + std::to_string(stage.node) + ": the cluster has " +
                     counted(cluster.nodes, "node") + ", counted from 0",
                 "name a node that exists or raise cluster.local_nodes");
  }
  if (stage.device < 0 || stage.device >= cluster.devices_per_node) {
    return wrong(where + ".device",
                 "there is no device " + std::to_string(stage.device) + ": each node has " +
                     counted(cluster.devices_per_node, "device") + ", counted from 0",
                 "name a device that exists or raise cluster.devices_per_node");
  }
  return Done{};
}

/// Adds projectors that nobody named to the entry of their encoder's last layer.
void add_projectors(const ModelGraph& model, std::vector<PlacedRun>& runs) {
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const ModuleId module{m};
    if (model.at(module).kind != ModuleKind::projector) continue;
    if (std::any_of(runs.begin(), runs.end(),
                    [&](const PlacedRun& placed) { return placed.run.module == module; }))
      continue;
    for (const ModuleId before : predecessors(model, module)) {
      const auto last = static_cast<std::int32_t>(model.at(before).layers.size()) - 1;
      const auto beside = std::find_if(runs.begin(), runs.end(), [&](const PlacedRun& placed) {
        return placed.run.module == before && placed.run.layers.begin <= last &&
               last < placed.run.layers.end;
      });
      if (beside == runs.end()) continue;
      const auto count = static_cast<std::int32_t>(model.at(module).layers.size());
      runs.push_back({beside->entry, {module, {0, count}}});
      break;
    }
  }
}

/// Every layer of every module exactly once.
Status check_coverage(const ModelGraph& model, const std::vector<PlacedRun>& runs,
                      std::size_t pipeline) {
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const auto& spec = model.modules[m];
    std::vector<std::vector<std::size_t>> entries(spec.layers.size());
    for (const auto& placed : runs) {
      if (placed.run.module != ModuleId{m}) continue;
      for (auto layer = placed.run.layers.begin; layer < placed.run.layers.end; ++layer)
        entries[static_cast<std::size_t>(layer)].push_back(placed.entry);
    }
    std::vector<std::size_t> missing;
    for (std::size_t layer = 0; layer < entries.size(); ++layer) {
      if (entries[layer].size() > 1) {
        return wrong(key_of(pipeline, entries[layer][1]) + "." + spec.name,
                     "layer " + std::to_string(layer) + " (" + spec.layers[layer].name +
                         ") is placed twice in pipeline " + std::to_string(pipeline) +
                         ": in stages " + std::to_string(entries[layer][0]) + " and " +
                         std::to_string(entries[layer][1]),
                     layers_fix(spec));
      }
      if (entries[layer].empty()) missing.push_back(layer);
    }
    if (!missing.empty()) {
      return wrong(key_of(pipeline),
                   "no stage of pipeline " + std::to_string(pipeline) + " has layer " +
                       ranges(missing) + " of module " + spec.name,
                   layers_fix(spec));
    }
  }
  return Done{};
}

/// The runs of one entry, in execution order, joined, and split into the sides of the boundary.
std::vector<std::vector<LayerRun>> split_sides(const ModelGraph& model,
                                               std::vector<LayerRun> runs) {
  std::sort(runs.begin(), runs.end());
  std::vector<std::vector<LayerRun>> sides;
  for (const auto& run : runs) {
    const bool crosses =
        sides.empty() || (run.module == model.llm() && sides.back().front().module != model.llm());
    if (crosses) sides.emplace_back();
    auto& side = sides.back();
    if (!side.empty() && side.back().module == run.module &&
        side.back().layers.end == run.layers.begin) {
      side.back().layers.end = run.layers.end;
    } else {
      side.push_back(run);
    }
  }
  return sides;
}

/// A stage before it has its final place, with the entry it came from.
struct DraftStage {
  Stage stage;
  std::size_t entry = 0;
};

/// Resolves one pipeline into stages in topological order.
Result<std::vector<Stage>> place_pipeline(const ModelGraph& model,
                                          const std::vector<HandStage>& entries,
                                          const ClusterShape& cluster, std::size_t pipeline) {
  if (entries.empty())
    return wrong(key_of(pipeline), "the pipeline has no stages",
                 "add `stages = [{node = 0, ...}]`");
  std::vector<PlacedRun> runs;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    const std::string where = key_of(pipeline, e);
    if (auto status = check_slot(entries[e], cluster, where); !status.ok()) return status.error();
    if (entries[e].runs.empty())
      return wrong(where, "the stage names no layers", "add layers, such as `llm = [0, 4]`");
    for (const auto& run : entries[e].runs) {
      auto resolved = resolve_run(model, run, where);
      if (!resolved.ok()) return resolved.error();
      runs.push_back({e, resolved.value()});
    }
  }
  add_projectors(model, runs);
  if (auto status = check_coverage(model, runs, pipeline); !status.ok()) return status.error();

  std::vector<Stage> stages;
  std::vector<std::size_t> entry_of;
  std::vector<std::vector<LayerRun>> own(entries.size());
  for (const auto& placed : runs) own[placed.entry].push_back(placed.run);
  for (std::size_t e = 0; e < entries.size(); ++e) {
    const auto device = entries[e].node * cluster.devices_per_node + entries[e].device;
    for (auto& side : split_sides(model, std::move(own[e]))) {
      stages.push_back({PipelineId{pipeline}, std::move(side), {DeviceId{device}}});
      entry_of.push_back(e);
    }
  }
  const auto order = topological_order(model, stages);
  if (order.size() < stages.size()) {
    std::vector<bool> placed(stages.size());
    for (const auto s : order) placed[s] = true;
    std::set<std::size_t> waiting;
    for (std::size_t s = 0; s < stages.size(); ++s)
      if (!placed[s]) waiting.insert(entry_of[s]);
    std::string circle;
    for (const auto entry : waiting) circle += (circle.empty() ? "" : ", ") + std::to_string(entry);
    return wrong(key_of(pipeline),
                 "stages " + circle +
                     " wait for each other's rows in a circle, in the same "
                     "microbatch",
                 "give each stage one run of consecutive layers per module, modules cut in the "
                 "same direction; write a device's second run as a stage of its own");
  }
  std::vector<Stage> sorted;
  for (const auto s : order) sorted.push_back(std::move(stages[s]));
  return sorted;
}

Status check_devices_used(const ParallelPlan& plan) {
  std::vector<bool> used(plan.devices.size());
  for (const auto& stage : plan.stages) used[stage.devices.front().index()] = true;
  for (std::size_t d = 0; d < used.size(); ++d) {
    if (used[d]) continue;
    return wrong("parallel.pipelines",
                 "device " + std::to_string(plan.devices[d].local_index) + " of node " +
                     std::to_string(plan.devices[d].node.value) + " has no stage and would idle",
                 "give it layers, or lower cluster.local_nodes or cluster.devices_per_node");
  }
  return Done{};
}

Status check_cluster(const ModelGraph& model, const ClusterShape& cluster) {
  if (cluster.nodes < 1 || cluster.devices_per_node < 1) {
    return wrong("cluster",
                 "a cluster of " + counted(cluster.nodes, "node") + " with " +
                     counted(cluster.devices_per_node, "device") + " each cannot hold a model",
                 "use at least one node with one device");
  }
  if (model.modules.empty())
    return wrong("modules", "the job has no module", "add `[modules.llm]` with kind = \"llm\"");
  for (const auto& module : model.modules)
    if (module.layers.empty())
      return wrong("modules." + module.name, "the module has no layers", "give it at least one");
  return Done{};
}

struct Placement {
  ParallelPlan plan;  ///< Complete only where there are no problems.
  std::vector<Error> problems;
};

Placement place(const ModelGraph& model, const HandLayout& layout, const ClusterShape& cluster) {
  if (auto status = check_cluster(model, cluster); !status.ok()) return {{}, {status.error()}};
  if (layout.pipelines.empty()) {
    auto chosen = default_layout(model, cluster);
    if (!chosen.ok()) return {{}, {chosen.error()}};
    return place(model, chosen.value(), cluster);
  }
  Placement placement;
  ParallelPlan& plan = placement.plan;
  plan.model = model;
  for (std::int32_t d = 0; d < cluster.devices(); ++d)
    plan.devices.push_back({NodeId{d / cluster.devices_per_node}, d % cluster.devices_per_node});
  for (std::size_t p = 0; p < layout.pipelines.size(); ++p) {
    auto stages = place_pipeline(model, layout.pipelines[p], cluster, p);
    if (!stages.ok()) {
      placement.problems.push_back(stages.error());
      continue;
    }
    plan.pipelines.emplace_back();
    for (auto& stage : stages.value()) {
      plan.pipelines.back().stages.push_back(StageId{plan.stages.size()});
      plan.stages.push_back(std::move(stage));
    }
  }
  if (!placement.problems.empty()) return placement;
  if (auto status = check_devices_used(plan); !status.ok())
    placement.problems.push_back(status.error());
  return placement;
}

}  // namespace

std::vector<Error> layout_problems(const ModelGraph& model, const HandLayout& layout,
                                   const ClusterShape& cluster) {
  return place(model, layout, cluster).problems;
}

Result<ParallelPlan> place_by_hand(const ModelGraph& model, const HandLayout& layout,
                                   const ClusterShape& cluster) {
  Placement placement = place(model, layout, cluster);
  if (!placement.problems.empty()) return placement.problems.front();
  placement.plan.groups = parameter_groups(placement.plan);
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
    return wrong("cluster",
                 "one pipeline cannot use " + std::to_string(devices) + " devices: the model has " +
                     std::to_string(layers.size()) + " layers to share out",
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
