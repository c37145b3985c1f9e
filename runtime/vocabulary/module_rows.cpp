#include "runtime/vocabulary/module_rows.hpp"

#include <algorithm>
#include <map>

namespace troupe {

TokenCount output_rows(const ModelGraph& graph, ModuleId module, const SampleShape& sample) {
  switch (graph.at(module).kind) {
    case ModuleKind::llm: return sample.llm_tokens;
    case ModuleKind::encoder: return sample.output_rows(module);
    case ModuleKind::teacher: return text_rows(sample);
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

TokenCount text_rows(const SampleShape& sample) {
  TokenCount rows = sample.llm_tokens;
  for (const TokenSpan& span : token_sample(sample).spans) rows -= span.end - span.begin;
  return rows;
}

TokenSample token_sample(const SampleShape& sample) {
  TokenSample made{sample.llm_tokens, {}};
  std::map<ModuleId, std::int32_t> seen;  // Markers of each module so far.
  TokenCount media_before = 0;
  for (const MediaMarker& marker : sample.markers) {
    const std::int32_t ordinal = seen[marker.module]++;
    TokenCount rows = 0;
    if (const auto* items = sample.items(marker.module))
      for (const auto& item : *items)
        if (item.marker == ordinal) rows += item.output_rows;
    if (rows == 0) continue;
    const TokenCount begin = marker.text_before + media_before;
    made.spans.push_back({begin, begin + rows});
    media_before += rows;
  }
  return made;
}

}  // namespace troupe
