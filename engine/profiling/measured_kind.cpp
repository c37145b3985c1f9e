#include "engine/profiling/measured_kind.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <bit>
#include <limits>

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

models::GridSize squarest_grid(std::int64_t patches) {
  std::int64_t height = 1;
  while (4 * height * height <= patches) height *= 2;
  return {height, patches / height};
}

TokenCount sequence_max(const MediaInput& media) {
  const VisionInput& vision = media.vision;
  if (media.medium != Medium::image || !vision.resize.is_fixed())
    return std::numeric_limits<TokenCount>::max();
  const TokenCount side = std::bit_floor(static_cast<std::uint32_t>(vision.square_patches()));
  return side * side;
}

std::vector<models::TaughtRows> any_taught_rows(const JobSetup& setup, std::int64_t tokens) {
  std::vector<models::TaughtRows> taught;
  for (const ModuleSpec& module : setup.model.modules)
    if (module.kind == ModuleKind::teacher)
      taught.push_back(
          {module.name, at::arange(tokens, at::kLong),
           at::randn({tokens, module.output_width},
                     at::TensorOptions().dtype(setup.layers.dtype).device(setup.layers.device))});
  return taught;
}

}  // namespace troupe::engine
