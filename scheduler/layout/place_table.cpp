#include "scheduler/layout/place_table.hpp"

#include <set>
#include <utility>

#include "runtime/vocabulary/nearest_word.hpp"
#include "scheduler/iteration/stage_graph.hpp"

namespace troupe::scheduler {

namespace {

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
    return wrong_layout(
        where, "no module is called '" + run.module + "'; the job has " + known,
        nearest.empty() ? "use one of these names" : "did you mean `" + nearest + "`?");
  }
  const auto& spec = model.at(module);
  const auto count = static_cast<std::int32_t>(spec.layers.size());
  const LayerRange layers = run.layers.value_or(LayerRange{0, count});
  if (layers.begin < 0 || layers.end > count || layers.begin >= layers.end) {
    return wrong_layout(where + "." + run.module,
                        "layers [" + std::to_string(layers.begin) + ", " +
                            std::to_string(layers.end) + "] are not a part of [0, " +
                            std::to_string(count) + "], the layers of " + run.module +
                            " (the end is not included)",
                        layers_fix(spec));
  }
  return LayerRun{module, layers};
}

/// As many devices as the grid has ranks, each once.
Status check_grid(const HandStage& stage, const std::string& where) {
  const std::int64_t ranks = std::int64_t{stage.tp} * stage.cp;
  if (stage.tp < 1 || stage.cp < 1)
    return wrong_layout(where,
                        "a grid of tp " + std::to_string(stage.tp) + " x cp " +
                            std::to_string(stage.cp) + " has no ranks",
                        "use degrees of at least 1");
  const auto devices = stage.all_devices();
  if (std::ssize(devices) != ranks)
    return wrong_layout(where + (stage.devices.empty() ? ".device" : ".devices"),
                        "tp " + std::to_string(stage.tp) + " x cp " + std::to_string(stage.cp) +
                            " takes " + counted(ranks, "device") + ", found " +
                            std::to_string(devices.size()),
                        "name one device per rank in `devices`, those of tp next to each other");
  if (std::set(devices.begin(), devices.end()).size() != devices.size())
    return wrong_layout(where + ".devices", "a device is named twice", "name each once");
  return Done{};
}

/// Node and devices of one entry, checked.
Status check_slots(const HandStage& stage, const ClusterShape& cluster, const std::string& where) {
  if (stage.node < 0 || stage.node >= cluster.nodes) {
    return wrong_layout(where + ".node",
                        "there is no node " + std::to_string(stage.node) + ": the cluster has " +
                            counted(cluster.nodes, "node") + ", counted from 0",
                        "name a node that exists or raise cluster.local_nodes");
  }
  if (auto status = check_grid(stage, where); !status.ok()) return status;
  for (const std::int32_t device : stage.all_devices()) {
    if (device >= 0 && device < cluster.devices_per_node) continue;
    return wrong_layout(where + (stage.devices.empty() ? ".device" : ".devices"),
                        "there is no device " + std::to_string(device) + ": each node has " +
                            counted(cluster.devices_per_node, "device") + ", counted from 0",
                        "name a device that exists or raise cluster.devices_per_node");
  }
  return Done{};
}

/// Adds projectors that nobody named to the entry of their encoder's last layer.
void add_projectors(const ModelGraph& model, const Table& table, std::vector<PlacedRun>& runs) {
  for (const ModuleId module : table.modules) {
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

/// Every layer of every module of the table exactly once.
Status check_coverage(const ModelGraph& model, const Table& table,
                      const std::vector<PlacedRun>& runs) {
  for (const PlacedRun& placed : runs)
    if (!table.holds(placed.run.module))
      return wrong_layout(
          table.stage(placed.entry) + "." + model.at(placed.run.module).name,
          model.at(placed.run.module).name + " is not of this replica's module group",
          "name it in the replica's `modules`, or place it in a replica of its own");
  for (const ModuleId module : table.modules) {
    const auto& spec = model.at(module);
    std::vector<std::vector<std::size_t>> entries(spec.layers.size());
    for (const auto& placed : runs) {
      if (placed.run.module != module) continue;
      for (auto layer = placed.run.layers.begin; layer < placed.run.layers.end; ++layer)
        entries[static_cast<std::size_t>(layer)].push_back(placed.entry);
    }
    std::vector<std::size_t> missing;
    for (std::size_t layer = 0; layer < entries.size(); ++layer) {
      if (entries[layer].size() > 1) {
        return wrong_layout(table.stage(entries[layer][1]) + "." + spec.name,
                            "layer " + std::to_string(layer) + " (" + spec.layers[layer].name +
                                ") is placed twice in " + table.name + ": in stages " +
                                std::to_string(entries[layer][0]) + " and " +
                                std::to_string(entries[layer][1]),
                            layers_fix(spec));
      }
      if (entries[layer].empty()) missing.push_back(layer);
    }
    if (!missing.empty()) {
      return wrong_layout(
          table.key,
          "no stage of " + table.name + " has layer " + ranges(missing) + " of module " + spec.name,
          layers_fix(spec));
    }
  }
  return Done{};
}

/// The runs of one entry, in execution order, joined, and split into those of encoders and of the
/// llm.
std::vector<std::vector<LayerRun>> split_groups(const ModelGraph& model,
                                                std::vector<LayerRun> runs) {
  std::sort(runs.begin(), runs.end());
  std::vector<std::vector<LayerRun>> groups;
  for (const auto& run : runs) {
    const bool next = groups.empty() ||
                      (run.module == model.llm() && groups.back().front().module != model.llm());
    if (next) groups.emplace_back();
    auto& group = groups.back();
    if (!group.empty() && group.back().module == run.module &&
        group.back().layers.end == run.layers.begin) {
      group.back().layers.end = run.layers.end;
    } else {
      group.push_back(run);
    }
  }
  return groups;
}

}  // namespace

Error wrong_layout(std::string where, std::string message, std::string fix) {
  return Error{Errc::invalid_argument, std::move(message), std::move(where), std::move(fix)};
}

std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

Result<std::vector<Stage>> place_table(const ModelGraph& model, const ClusterShape& cluster,
                                       const Table& table) {
  const auto& entries = table.entries;
  if (entries.empty())
    return wrong_layout(table.key, table.name + " has no stages",
                        "add `stages = [{node = 0, ...}]`");
  std::vector<PlacedRun> runs;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    const std::string where = table.stage(e);
    if (auto status = check_slots(entries[e], cluster, where); !status.ok()) return status.error();
    if (entries[e].runs.empty())
      return wrong_layout(where, "the stage names no layers", "add layers, such as `llm = [0, 4]`");
    for (const auto& run : entries[e].runs) {
      auto resolved = resolve_run(model, run, where);
      if (!resolved.ok()) return resolved.error();
      runs.push_back({e, resolved.value()});
    }
  }
  add_projectors(model, table, runs);
  if (auto status = check_coverage(model, table, runs); !status.ok()) return status.error();

  std::vector<Stage> stages;
  std::vector<std::size_t> entry_of;
  std::vector<std::vector<LayerRun>> own(entries.size());
  for (const auto& placed : runs) own[placed.entry].push_back(placed.run);
  for (std::size_t e = 0; e < entries.size(); ++e) {
    std::vector<DeviceId> devices;
    for (const std::int32_t device : entries[e].all_devices())
      devices.push_back(DeviceId{entries[e].node * cluster.devices_per_node + device});
    for (auto& group : split_groups(model, std::move(own[e]))) {
      stages.push_back({ReplicaId{}, std::move(group), devices, {entries[e].tp, entries[e].cp}});
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
    return wrong_layout(
        table.key,
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

}  // namespace troupe::scheduler
