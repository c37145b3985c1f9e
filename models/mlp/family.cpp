#include "models/mlp/family.hpp"

#include "models/family/block_work.hpp"

namespace troupe::models {

namespace {

using By = TensorSplit::By;

void fields(ConfigFields& v, ProjectorConfig& x) {
  v.integer("input_size", x.input_size, 0, 1 << 20);
  v.integer("hidden_size", x.hidden_size, 0, 1 << 20);
  v.integer("output_size", x.output_size, 0, 1 << 20);
}

ModuleSizes sizes(const ProjectorConfig& x) { return {1, x.input_size, x.output_size}; }

struct Sizes {
  std::int64_t input, hidden, output;
};

Sizes resolved(const ModuleConfig& module, const Widths& widths) {
  const auto& c = module.config.as<ProjectorConfig>();
  const std::int64_t output = c.output_size > 0 ? c.output_size : widths.output;
  return {c.input_size > 0 ? c.input_size : widths.input,
          c.hidden_size > 0 ? c.hidden_size : output, output};
}

ModuleDescription describe(const ModuleConfig& module, const Widths& widths) {
  const auto [input, hidden, output] = resolved(module, widths);
  LayerDescription layer{module.name + ".mlp", {}};
  add_linear(layer, module.name + ".linear_1", hidden, input, {By::output});
  add_linear(layer, module.name + ".linear_2", output, hidden, {By::input});
  return {{std::move(layer)}, hidden, output};
}

std::vector<LayerWork> works(const ModuleConfig& module, const Widths& widths) {
  const auto sizes = resolved(module, widths);
  const auto input = double(sizes.input), hidden = double(sizes.hidden),
             output = double(sizes.output);
  LayerWork mlp = dense_work(module.name + ".mlp", input * hidden + hidden * output, sizes.output,
                             input + 2 * hidden);
  mlp.entry_weights = input * hidden;
  return {std::move(mlp)};
}

}  // namespace

Family mlp() {
  Family family{"mlp", ModuleKind::projector, ProjectorConfig{}};
  family.fields = fields_of(fields);
  family.sizes = asked(sizes);
  family.describe = describe;
  family.works = works;
  return family;
}

}  // namespace troupe::models
