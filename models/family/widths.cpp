#include "models/family/widths.hpp"

#include "models/family/registry.hpp"

namespace troupe::models {

namespace {

using Modules = std::vector<ModuleConfig>;

/// Sizes of a module that may be of no known family yet.
ModuleSizes sizes_of(const ModuleConfig& module) {
  const auto family = family_of(module);
  return family ? family.value()->sizes(module.config) : ModuleSizes{};
}

const ModuleConfig* find_before(const ModuleConfig& module, const Modules& all) {
  for (const auto& other : all)
    if (other.next == module.name && other.kind != ModuleKind::llm &&
        other.kind != ModuleKind::teacher)
      return &other;
  return nullptr;
}

std::int64_t llm_width(const Modules& all) {
  for (const auto& other : all)
    if (other.kind == ModuleKind::llm) return sizes_of(other).output_width;
  return 0;
}

}  // namespace

Widths widths_around(const ModuleConfig& module, const Modules& all) {
  const auto* before = find_before(module, all);
  return {before ? output_width(*before, all) : 0, llm_width(all)};
}

std::int64_t input_width(const ModuleConfig& module, const Modules& all) {
  if (module.kind == ModuleKind::encoder || module.kind == ModuleKind::teacher) return 0;
  const auto own = sizes_of(module).input_width;
  return own > 0 ? own : widths_around(module, all).input;
}

std::int64_t output_width(const ModuleConfig& module, const Modules& all) {
  const auto own = sizes_of(module).output_width;
  return own > 0 ? own : llm_width(all);
}

}  // namespace troupe::models
