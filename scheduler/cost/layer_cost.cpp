#include "scheduler/cost/layer_cost.hpp"

#include <cassert>

namespace troupe::scheduler {

LayerCost frozen_aware(LayerCost full, const ModelGraph& graph, LayerId layer) {
  if (!trains(graph, layer)) full.weight_grad_ms = 0;
  if (!needs_input_gradient(graph, layer)) full.input_grad_ms = 0;
  if (!needs_backward(graph, layer)) full.activations = Bytes{};
  return full;
}

std::vector<LayerCost> frozen_aware(std::span<const LayerCost> full, const ModelGraph& graph,
                                    ModuleId module) {
  assert(full.size() == graph.at(module).layers.size());
  std::vector<LayerCost> costs;
  costs.reserve(full.size());
  for (std::size_t layer = 0; layer < full.size(); ++layer)
    costs.push_back(
        frozen_aware(full[layer], graph, LayerId{module, static_cast<std::int32_t>(layer)}));
  return costs;
}

}  // namespace troupe::scheduler
