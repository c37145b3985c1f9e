// A family that is added, small enough to be made wrong in every way.

#pragma once

#include "tests/torch_catch.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/family/family.hpp"
#include "models/layer.hpp"
#include "models/parameter_layer.hpp"

namespace troupe::models {

struct AddedConfig {
  std::int32_t width = 8;
  friend bool operator==(const AddedConfig&, const AddedConfig&) = default;
};

struct Scale : ParameterLayer {
  using ParameterLayer::ParameterLayer;
  at::Tensor forward(const at::Tensor& rows, const PackedBatch&) override {
    return rows.mul((*this)[0]);
  }
};

/// A projector that scales each column.
inline Family added(const std::string& name) {
  Family family;
  family.name = name;
  family.kind = ModuleKind::projector;
  family.defaults = AddedConfig{};
  family.fields = fields_of<AddedConfig>(
      [](ConfigFields& v, AddedConfig& x) { v.integer("width", x.width, 1, 64); });
  family.sizes = [](const FamilyConfig& c) {
    const auto width = c.as<AddedConfig>().width;
    return ModuleSizes{1, width, width};
  };
  family.describe = [](const ModuleConfig& module, const Widths&) {
    const std::int64_t width = module.config.as<AddedConfig>().width;
    return ModuleDescription{
        {{module.name + ".scale", {{module.name + ".scale.weight", {width}, Initial::ones}}}},
        width,
        width};
  };
  family.works = [](const ModuleConfig& module, const Widths&) {
    LayerWork work;
    work.kind = module.name + ".scale";
    work.width = module.config.as<AddedConfig>().width;
    return std::vector{work};
  };
  family.make = [](const ModuleConfig&, int, std::vector<Parameter> parameters) {
    return std::unique_ptr<Layer>(std::make_unique<Scale>(std::move(parameters)));
  };
  return family;
}

}  // namespace troupe::models
