#include "models/description.hpp"

#include <functional>
#include <numeric>

#include "models/family.hpp"

namespace troupe::models {

std::int64_t ParameterSpec::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Result<ModuleDescription> describe_module(const ModuleConfig& module,
                                          const std::vector<ModuleConfig>& all) {
  auto family = find_family(module);
  if (!family) return family.error();
  return family.value()->describe(module, all);
}

void add_linear(LayerDescription& layer, const std::string& name, std::int64_t out,
                std::int64_t in) {
  layer.parameters.push_back({name + ".weight", {out, in}, Initial::normal});
  layer.parameters.push_back({name + ".bias", {out}, Initial::zeros});
}

void add_norm(LayerDescription& layer, const std::string& name, std::int64_t width) {
  layer.parameters.push_back({name + ".weight", {width}, Initial::ones});
  layer.parameters.push_back({name + ".bias", {width}, Initial::zeros});
}

}  // namespace troupe::models
