#include "engine/profiling/measured_kind.hpp"

#include "models/family/registry.hpp"

namespace troupe::engine {

LayerWork work_of(const JobSetup& setup, const LayerKind& kind) {
  const auto works = models::module_works(config_of(setup, kind.example.module), setup.modules());
  return works[static_cast<std::size_t>(kind.example.layer)];
}

}  // namespace troupe::engine
