// The projector of LLaVA: two linear layers with exact GELU between them. One layer.

#include "kernels/activations.hpp"
#include "kernels/linear.hpp"
#include "models/family.hpp"
#include "models/widths.hpp"

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

Result<ModuleDescription> describe(const ModuleConfig& module,
                                   const std::vector<ModuleConfig>& all) {
  const auto config = resolve_projector(module, all);
  if (config.input_size < 1 || config.hidden_size < 1 || config.output_size < 1)
    return config_error(module, "config",
                        "the projector's widths are " + std::to_string(config.input_size) + ", " +
                            std::to_string(config.hidden_size) + " and " +
                            std::to_string(config.output_size) + "; all must be at least 1",
                        "set `next` of the encoder before it to this module, or give the widths");
  LayerDescription layer{module.name + ".mlp", {}};
  add_linear(layer, module.name + ".linear_1", config.hidden_size, config.input_size);
  add_linear(layer, module.name + ".linear_2", config.output_size, config.hidden_size);
  return ModuleDescription{{std::move(layer)}, config.hidden_size, config.output_size};
}

std::unique_ptr<Layer> make(const ModuleConfig&, int, std::vector<Parameter> parameters) {
  return std::make_unique<Projector>(std::move(parameters));
}

}  // namespace

const Family kMlp{"mlp", ModuleKind::projector, 2, describe, make};

}  // namespace troupe::models
