#include "runtime/vocabulary/module_rows.hpp"

#include <algorithm>

namespace troupe {

TokenCount output_rows(const ModelGraph& graph, ModuleId module, const SampleShape& sample) {
  switch (graph.at(module).kind) {
    case ModuleKind::llm: return sample.llm_tokens;
    case ModuleKind::encoder: return sample.output_rows(module);
    case ModuleKind::projector: break;
  }
  TokenCount rows = 0;
  // Modules stand in topological order: whatever feeds this one stands before it.
  for (std::size_t m = 0; m < module.index(); ++m) {
    const auto& next = graph.modules[m].next;
    if (std::find(next.begin(), next.end(), module) != next.end())
      rows += output_rows(graph, ModuleId{m}, sample);
  }
  return rows;
}

TokenCount hidden_rows(const ModelGraph& graph, ModuleId module, const SampleShape& sample) {
  const TokenCount rows = output_rows(graph, module, sample);
  if (rows == 0 || graph.at(module).kind != ModuleKind::encoder) return rows;
  return sample.hidden_rows(module);
}

}  // namespace troupe
