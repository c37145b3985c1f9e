#include "scheduler/cost/layer_work.hpp"

#include <algorithm>
#include <cassert>

#include "models/family/registry.hpp"

namespace troupe::scheduler {

std::vector<LayerWork> layer_works(const ModuleConfig& module, std::int64_t input_width,
                                   std::int64_t output_width) {
  return models::checked_family(module).works(module, {input_width, output_width});
}

std::vector<std::vector<LayerWork>> model_works(const ModelGraph& graph,
                                                const std::vector<ModuleConfig>& modules) {
  std::vector<std::vector<LayerWork>> works;
  const std::int64_t llm_width = graph.at(graph.llm()).hidden_width;
  for (const ModuleSpec& spec : graph.modules) {
    std::int64_t input_width = 0;
    for (const ModuleSpec& before : graph.modules)
      for (const ModuleId next : before.next)
        if (graph.at(next).name == spec.name && before.kind != ModuleKind::teacher)
          input_width = before.output_width;
    const auto found = std::find_if(modules.begin(), modules.end(),
                                    [&](const auto& module) { return module.name == spec.name; });
    assert(found != modules.end());
    works.push_back(layer_works(*found, input_width, llm_width));
  }
  return works;
}

}  // namespace troupe::scheduler
