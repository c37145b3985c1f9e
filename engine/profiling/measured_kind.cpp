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

namespace {

constexpr TokenCount kLeast = 16;

/// Patches that become one row.
std::int64_t merged_patches(const VisionInput& vision) {
  return std::int64_t{vision.merge_size} * vision.merge_size;
}

std::int64_t power_of_two_below(std::int64_t count) {
  return static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, count))));
}

}  // namespace

TokenCount measured_size(const MediaInput& media, TokenCount tokens) {
  if (media.medium != Medium::image) return tokens;
  const std::int64_t merged = merged_patches(media.vision);
  return merged * power_of_two_below(kLeast / merged) * (tokens / kLeast);
}

models::GridSize squarest_grid(const VisionInput& vision, std::int64_t patches) {
  const std::int64_t rows = patches / merged_patches(vision);
  std::int64_t height = 1;
  while (4 * height * height <= rows) height *= 2;
  return {height * vision.merge_size, rows / height * vision.merge_size};
}

TokenCount sequence_max(const MediaInput& media) {
  const VisionInput& vision = media.vision;
  if (media.medium != Medium::image || !vision.resize.is_fixed())
    return std::numeric_limits<TokenCount>::max();
  const TokenCount side =
      vision.merge_size * power_of_two_below(vision.square_patches() / vision.merge_size);
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
