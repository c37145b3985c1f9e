// The projector of LLaVA: two linear layers with exact GELU between them. One layer.

#include "kernels/activations.hpp"
#include "kernels/linear.hpp"
#include "models/built_in_layers.hpp"
#include "models/parameter_layer.hpp"

namespace troupe::models {

namespace {

class Projector : public ParameterLayer {
 public:
  using ParameterLayer::ParameterLayer;

  at::Tensor forward(const at::Tensor& rows, const PackedBatch&) override {
    const auto& self = *this;
    const auto wide = kernels::gelu(kernels::linear(rows, self[0], self[1]));
    return kernels::linear(wide, self[2], self[3]);
  }
};

}  // namespace

std::unique_ptr<Layer> make_mlp(const ModuleConfig&, int, std::vector<Parameter> parameters) {
  return std::make_unique<Projector>(std::move(parameters));
}

}  // namespace troupe::models
