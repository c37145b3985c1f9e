#include "engine/measured_kind.hpp"

#include "models/family/registry.hpp"
#include "models/family/widths.hpp"

namespace troupe::engine {

LayerWork work_of(const JobSetup& setup, const LayerKind& kind) {
  const auto& module = config_of(setup, kind.example.module);
  const auto works =
      models::checked_family(module).works(module, models::widths_around(module, setup.modules()));
  return works[static_cast<std::size_t>(kind.example.layer)];
}

}  // namespace troupe::engine
