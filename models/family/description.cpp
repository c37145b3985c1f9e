#include "models/family/description.hpp"

#include <functional>
#include <numeric>

namespace troupe::models {

std::int64_t ParameterSpec::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

void add_linear(LayerDescription& layer, const std::string& name, std::int64_t out, std::int64_t in,
                TensorSplit split) {
  layer.parameters.push_back({name + ".weight", {out, in}, Initial::normal, false, split});
  layer.parameters.push_back({name + ".bias", {out}, Initial::zeros});
}

void add_norm(LayerDescription& layer, const std::string& name, std::int64_t width) {
  layer.parameters.push_back({name + ".weight", {width}, Initial::ones});
  layer.parameters.push_back({name + ".bias", {width}, Initial::zeros});
}

}  // namespace troupe::models
