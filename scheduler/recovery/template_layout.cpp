#include "scheduler/recovery/template_layout.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "scheduler/layout/kind_cuts.hpp"
#include "scheduler/layout/layout_score.hpp"
#include "scheduler/layout/layout_shapes.hpp"
#include "scheduler/layout/phase_memory.hpp"

namespace troupe::scheduler {

std::vector<LayerId> layers_of(const ModelGraph& model) {
  std::vector<LayerId> layers;
  for (std::size_t m = 0; m < model.modules.size(); ++m)
    for (std::size_t l = 0; l < model.modules[m].layers.size(); ++l)
      layers.push_back({ModuleId{m}, static_cast<std::int32_t>(l)});
  return layers;
}

std::vector<LayerId> layers_of(const ModelGraph& model, const std::vector<ModuleId>& modules) {
  auto layers = layers_of(model);
  std::erase_if(layers, [&](const LayerId& layer) {
    return std::find(modules.begin(), modules.end(), layer.module) == modules.end();
  });
  return layers;
}

namespace {

/// Of what a layer of encoders keeps of a microbatch, what is in host memory while they run others,
/// as if its stage had no other layer.
double offloaded_bytes(const LayerWeights& weights, std::size_t layer, ModuleId llm) {
  const Track alone{{layer}, 0, {0, 1}};
  return phase_stages(alone, weights, llm).front().demand.offloaded_bytes;
}

/// Nodes of templates, with so many devices each.
struct TemplateNodes {
  std::int64_t count = 1;
  std::int32_t devices = 1;
};

/// Templates of the layers that `is_cut` names, of a model whose batch `replicas` share.
Result<TemplateSet> templates_of(const AutoLayoutRequest& request, const ModelGraph& model,
                                 const std::vector<bool>& is_cut, std::int32_t replicas,
                                 TemplateNodes nodes, std::int64_t fault_tolerance) {
  LayoutScorer scorer(request);
  auto weights = scorer.weights(replicas, {});
  if (!weights.ok()) return std::move(weights).error();
  const auto& whole = weights.value();
  std::vector<std::size_t> cut;
  for (std::size_t i = 0; i < is_cut.size(); ++i)
    if (is_cut[i]) cut.push_back(i);
  std::vector<TemplateLayer> layers;
  // Templates ask for the sum of forward and backward alone.
  for (const std::size_t i : cut) layers.push_back({whole.work_ms[i], 0, {}, {}});
  // What a layer takes on k devices beyond a k-th of its work is what splitting it costs.
  for (std::int32_t k = 2; request.planned_only && k <= nodes.devices; k *= 2) {
    const std::vector<Parallelism> degrees(model.modules.size(), {k, 1});
    const auto split = scorer.weights(replicas, degrees);
    if (!split.ok()) break;
    for (std::size_t l = 0; l < cut.size(); ++l)
      layers[l].in_node_sync_ms[k] =
          std::max(0.0, split.value().work_ms[cut[l]] - whole.work_ms[cut[l]] / k);
  }
  TemplateRequest made;
  made.node_count = nodes.count;
  made.gpus_per_node = nodes.devices;
  made.fault_tolerance = fault_tolerance;
  // Templates know no device without a limit, and add a node's up.
  constexpr Bytes kAnyMemory{std::int64_t{1} << 50};
  made.device_memory = request.device_memory.count() > 0 ? request.device_memory : kAnyMemory;
  made.microbatches = request.microbatches;
  auto set = make_templates_in_flight(
      made, [&](std::int64_t in_flight) -> Result<std::vector<TemplateLayer>> {
        const auto held = static_cast<double>(std::min(in_flight, request.microbatches));
        for (std::size_t l = 0; l < cut.size(); ++l)
          layers[l].memory = Bytes{static_cast<std::int64_t>(
              whole.state_bytes[cut[l]] + held * whole.activation_bytes[cut[l]] -
              (held - 1) * offloaded_bytes(whole, cut[l], model.llm()))};
        return layers;
      });
  if (set.ok()) set.value().stage_kinds = request.stage_kinds;
  return set;
}

}  // namespace

Result<TemplateSet> layout_templates(const AutoLayoutRequest& request, const ModelGraph& model,
                                     std::int32_t pipelines, std::int64_t nodes,
                                     std::int64_t fault_tolerance) {
  const std::vector<bool> all(layers_of(model).size(), true);
  return templates_of(request, model, all, pipelines, {nodes, request.cluster.devices_per_node},
                      fault_tolerance);
}

Result<std::vector<TemplateSet>> group_templates(const AutoLayoutRequest& request,
                                                 const ParallelPlan& plan, std::int64_t nodes) {
  const auto layers = layers_of(plan.model);
  std::vector<TemplateSet> sets;
  for (std::size_t g = 0; g < plan.module_groups.size(); ++g) {
    std::vector<bool> is_cut;
    for (const LayerId& layer : layers)
      is_cut.push_back(plan.group_of(layer.module) == ModuleGroupId{g});
    std::int32_t replicas = 0;
    for (const Replica& replica : plan.replicas) replicas += replica.group == ModuleGroupId{g};
    auto made = templates_of(request, plan.model, is_cut, replicas,
                             {nodes * request.cluster.devices_per_node, 1}, 0);
    if (!made.ok() && made.error().code != Errc::infeasible) return std::move(made).error();
    sets.push_back(made.ok() ? std::move(made).value() : TemplateSet{});
  }
  return sets;
}

bool has_groups_of_their_own(const ParallelPlan& plan) {
  return std::any_of(plan.pipelines.begin(), plan.pipelines.end(), [&](const Pipeline& own) {
    return own.replicas.size() != plan.module_groups.size();
  });
}

std::map<DeviceSlot, std::set<ModuleGroupId>> groups_by_device(const ParallelPlan& plan) {
  std::map<DeviceSlot, std::set<ModuleGroupId>> groups;
  for (const Stage& stage : plan.stages)
    for (const DeviceId device : stage.devices)
      groups[plan.devices[device.index()]].insert(plan.at(stage.replica).group);
  return groups;
}

std::vector<HandStage> as_written(const ParallelPlan& plan, const std::vector<StageId>& stages) {
  std::vector<HandStage> entries;
  for (const StageId id : stages) {
    const DeviceSlot& slot = plan.devices[plan.at(id).devices.front().index()];
    HandStage& entry = entries.emplace_back();
    entry.node = slot.node.value;
    entry.device = slot.local_index;
    for (const LayerRun& run : plan.at(id).runs)
      entry.runs.push_back({plan.model.at(run.module).name, run.layers});
  }
  return entries;
}

std::optional<std::vector<HandStage>> stages_of_template(
    const ModelGraph& model, const std::vector<LayerId>& layers, const PipelineTemplate& made,
    const std::vector<std::int32_t>& nodes, const std::vector<std::int32_t>& stage_kinds) {
  std::vector<HandStage> stages;
  std::map<std::int32_t, std::int32_t> devices;  // Used on each node of the template.
  for (const auto& stage : made.stages) {
    if (stage.gpu_count > 1) return std::nullopt;
    HandStage own;
    own.node = nodes[static_cast<std::size_t>(stage.node)];
    own.device = devices[stage.node]++;
    for (auto l = stage.layers.begin; l < stage.layers.end; ++l) {
      const auto& layer = layers[static_cast<std::size_t>(l)];
      const auto& name = model.at(layer.module).name;
      if (own.runs.empty() || own.runs.back().module != name)
        own.runs.push_back({name, LayerRange{layer.layer, layer.layer}});
      own.runs.back().layers->end = layer.layer + 1;
    }
    for (HandStage& part : cut_by_kinds(model, stage_kinds, std::move(own)))
      stages.push_back(std::move(part));
  }
  return stages;
}

}  // namespace troupe::scheduler
