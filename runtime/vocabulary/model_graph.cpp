#include "runtime/vocabulary/model_graph.hpp"

#include <algorithm>

namespace troupe {

namespace {

bool has_parameters(const ModelGraph& graph, LayerId id) {
  const auto& layer = graph.at(id.module).layers[static_cast<std::size_t>(id.layer)];
  if (layer.parameter_elements > 0) return true;
  return std::any_of(graph.tied.begin(), graph.tied.end(), [&](const TiedParameter& tied) {
    return std::find(tied.layers.begin(), tied.layers.end(), id) != tied.layers.end();
  });
}

bool anything_trains_up_to(const ModelGraph& graph, ModuleId module, std::int32_t layer_end) {
  for (std::int32_t layer = 0; layer < layer_end; ++layer)
    if (trains(graph, {module, layer})) return true;
  for (std::size_t i = 0; i < graph.modules.size(); ++i) {
    const auto& next = graph.modules[i].next;
    if (std::find(next.begin(), next.end(), module) == next.end()) continue;
    const auto count = static_cast<std::int32_t>(graph.modules[i].layers.size());
    if (anything_trains_up_to(graph, ModuleId{i}, count)) return true;
  }
  return false;
}

}  // namespace

std::int64_t tied_elements_begun(const ModelGraph& graph, LayerId layer) {
  std::int64_t count = 0;
  for (const TiedParameter& tied : graph.tied)
    if (!tied.layers.empty() && tied.layers.front() == layer) count += tied.parameter_elements;
  return count;
}

std::int32_t entry_layer(const ModelGraph& graph, ModuleId from, ModuleId to) {
  if (graph.at(from).kind != ModuleKind::teacher) return 0;
  return static_cast<std::int32_t>(graph.at(to).layers.size()) - 1;
}

ModuleElements module_elements(const ModelGraph& graph, ModuleId module) {
  ModuleElements sum;
  const ModuleSpec& spec = graph.at(module);
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    const LayerSpec& layer = spec.layers[l];
    const auto learned = layer.parameter_elements +
                         tied_elements_begun(graph, {module, static_cast<std::int32_t>(l)});
    sum.all += learned + layer.constant_elements;
    if (!spec.freeze) sum.trained += learned;
  }
  return sum;
}

bool trains(const ModelGraph& graph, LayerId layer) {
  return !graph.at(layer.module).freeze && has_parameters(graph, layer);
}

bool needs_input_gradient(const ModelGraph& graph, LayerId layer) {
  return anything_trains_up_to(graph, layer.module, layer.layer);
}

bool needs_backward(const ModelGraph& graph, LayerId layer) {
  return trains(graph, layer) || needs_input_gradient(graph, layer);
}

}  // namespace troupe
