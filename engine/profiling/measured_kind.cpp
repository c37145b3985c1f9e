#include "engine/profiling/measured_kind.hpp"

#include <algorithm>

#include "models/family/registry.hpp"

namespace troupe::engine {

const ModuleConfig& config_of(const JobSetup& setup, ModuleId module) {
  const auto& name = setup.model.at(module).name;
  return *std::find_if(setup.modules().begin(), setup.modules().end(),
                       [&](const ModuleConfig& config) { return config.name == name; });
}

LayerWork work_of(const JobSetup& setup, const LayerKind& kind) {
  const auto works = models::module_works(config_of(setup, kind.example.module), setup.modules());
  return works[static_cast<std::size_t>(kind.example.layer)];
}

}  // namespace troupe::engine
