#include "scheduler/recovery/template_layout.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "scheduler/layout/layout_score.hpp"

namespace troupe::scheduler {

std::vector<LayerId> layers_of(const ModelGraph& model) {
  std::vector<LayerId> layers;
  for (std::size_t m = 0; m < model.modules.size(); ++m)
    for (std::size_t l = 0; l < model.modules[m].layers.size(); ++l)
      layers.push_back({ModuleId{m}, static_cast<std::int32_t>(l)});
  return layers;
}

Result<TemplateSet> layout_templates(const AutoLayoutRequest& request, const ModelGraph& model,
                                     std::int32_t pipelines, std::int64_t nodes,
                                     std::int64_t fault_tolerance) {
  LayoutScorer scorer(request);
  auto weights = scorer.weights(pipelines, {});
  if (!weights.ok()) return std::move(weights).error();
  const auto& whole = weights.value();
  std::vector<TemplateLayer> layers;
  // Templates ask for the sum of forward and backward alone.
  for (const double work_ms : whole.work_ms) layers.push_back({work_ms, 0, {}, {}});
  // What a layer takes on k devices beyond a k-th of its work is what splitting it costs.
  for (std::int32_t k = 2; request.planned_only && k <= request.cluster.devices_per_node; k *= 2) {
    const std::vector<Parallelism> degrees(model.modules.size(), {k, 1});
    const auto split = scorer.weights(pipelines, degrees);
    if (!split.ok()) break;
    for (std::size_t i = 0; i < layers.size(); ++i)
      layers[i].in_node_sync_ms[k] = std::max(0.0, split.value().work_ms[i] - whole.work_ms[i] / k);
  }
  TemplateRequest made;
  made.node_count = nodes;
  made.gpus_per_node = request.cluster.devices_per_node;
  made.fault_tolerance = fault_tolerance;
  made.device_memory = request.device_memory;
  made.microbatches = request.microbatches;
  return make_templates_in_flight(
      made, [&](std::int64_t in_flight) -> Result<std::vector<TemplateLayer>> {
        const auto held = static_cast<double>(std::min(in_flight, request.microbatches));
        for (std::size_t i = 0; i < layers.size(); ++i)
          layers[i].memory = Bytes{
              static_cast<std::int64_t>(whole.state_bytes[i] + held * whole.activation_bytes[i])};
        return layers;
      });
}

std::optional<std::vector<HandStage>> stages_of_template(const ModelGraph& model,
                                                         const PipelineTemplate& made,
                                                         const std::vector<std::int32_t>& nodes) {
  const auto layers = layers_of(model);
  std::vector<HandStage> stages;
  std::map<std::int32_t, std::int32_t> devices;  // Used on each node of the template.
  for (const auto& stage : made.stages) {
    if (stage.gpu_count > 1) return std::nullopt;
    HandStage& own = stages.emplace_back();
    own.node = nodes[static_cast<std::size_t>(stage.node)];
    own.device = devices[stage.node]++;
    for (auto l = stage.layers.begin; l < stage.layers.end; ++l) {
      const auto& layer = layers[static_cast<std::size_t>(l)];
      const auto& name = model.at(layer.module).name;
      if (own.runs.empty() || own.runs.back().module != name)
        own.runs.push_back({name, LayerRange{layer.layer, layer.layer}});
      own.runs.back().layers->end = layer.layer + 1;
    }
  }
  return stages;
}

}  // namespace troupe::scheduler
