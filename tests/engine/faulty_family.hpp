// A projector that does wrong what a word of its configuration says.

#pragma once

#include "tests/torch_catch.hpp"

#include <ATen/ops/where.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/activations.hpp"
#include "kernels/linear.hpp"
#include "models/auxiliary_loss.hpp"
#include "models/family/block_work.hpp"
#include "models/family/registry.hpp"
#include "models/parameter_layer.hpp"

namespace troupe::engine {

struct FaultyConfig {
  std::string fault = "none";
  friend bool operator==(const FaultyConfig&, const FaultyConfig&) = default;
};

inline const std::vector<std::string> kFaults{"none",   "chooses", "steep",  "writes", "asks",
                                              "copies", "mixes",   "adds",   "widens", "pretends",
                                              "throws", "keeps",   "hoards", "turns"};

/// Of a projector of two layers: one column more between them than there is, the first one's work
/// said of the second, or one that keeps rows, behind one that keeps none. hoards: keeps and
/// widens.
inline bool has_two_layers(const std::string& fault) {
  return fault == "widens" || fault == "pretends" || fault == "keeps" || fault == "hoards";
}

/// gelu(x W^T + b), with a constant beside it.
class FaultyLayer final : public models::ParameterLayer {
 public:
  FaultyLayer(std::string fault, std::vector<models::Parameter> parameters)
      : ParameterLayer(std::move(parameters)), fault_(std::move(fault)) {
    at::Tensor& weight = this->parameters().front().value;
    if (fault_ == "turns") weight = weight.t();
  }

  at::Tensor forward(const at::Tensor& rows, const models::PackedBatch& batch) override {
    auto& p = *this;  // weight, bias, constant
    if (fault_ == "throws") throw std::runtime_error("too tired");
    if (fault_ == "writes") *p[2].data_ptr<double>() += 1;
    if (fault_ == "asks") p[2].requires_grad_(true);
    if ((fault_ == "keeps" || fault_ == "hoards") && !has_constant())
      kept_.push_back(rows.detach().clone());
    const at::Tensor weight = fault_ == "copies" ? copied(p[0]) : p[0];
    const at::Tensor out = kernels::gelu(kernels::linear(rows, weight, p[1]));
    // Right, and it jumps: a choice by the values, as experts are chosen.
    if (fault_ == "chooses") return out.mul(at::where(out.mul(200).sin().gt(0), 1.0, 0.5).detach());
    // One part in two thousand of its slope is missing.
    if (fault_ == "steep") return out.mul(0.9995).add(out.detach().mul(0.0005));
    // Samples that stand beside each other: their rows, or what is added to the loss.
    if (fault_ == "mixes") return out.sub(out.mean(0, true));
    const auto segments = static_cast<std::int64_t>(batch.segments.size());
    if (fault_ == "adds") models::add_loss(batch, "mean", out.mean().expand({segments}), 0.5);
    return out;
  }

 private:
  /// Of two layers only the first one has.
  bool has_constant() { return parameters().size() > 2; }

  /// The value as it was first, with the parameter's gradient.
  at::Tensor copied(const at::Tensor& weight) {
    if (!copy_.defined()) copy_ = weight.detach().clone();
    return weight.sub(weight.detach()).add(copy_);
  }

  const std::string fault_;
  at::Tensor copy_;
  std::vector<at::Tensor> kept_;
};

/// Adds the family `faulty`, once.
inline void register_faulty_family() {
  if (models::find_family("faulty") != nullptr) return;
  models::Family family{"faulty", ModuleKind::projector, FaultyConfig{}};
  family.fields = models::fields_of<FaultyConfig>(
      +[](models::ConfigFields& v, FaultyConfig& x) { v.word("fault", x.fault, kFaults); });
  family.sizes = models::asked<FaultyConfig>(+[](const FaultyConfig& x) {
    return models::ModuleSizes{.layers = has_two_layers(x.fault) ? 2 : 1};
  });
  family.describe = [](const ModuleConfig& module, const models::Widths& widths) {
    models::LayerDescription layer{module.name + ".faulty", {}};
    layer.parameters = {{module.name + ".weight", {widths.output, widths.input}},
                        {module.name + ".bias", {widths.output}, models::Initial::zeros},
                        {module.name + ".constant", {4, 4}, models::Initial::sinusoid}};
    models::ModuleDescription made{{std::move(layer)}, widths.output, widths.output};
    const std::string& fault = module.config.as<FaultyConfig>().fault;
    if (!has_two_layers(fault)) return made;
    made.layers.push_back({module.name + ".second", {}});
    made.layers.back().parameters = {
        {module.name + ".second.weight", {widths.output, widths.output}},
        {module.name + ".second.bias", {widths.output}, models::Initial::zeros}};
    if (fault == "widens" || fault == "hoards") ++made.hidden_width;
    return made;
  };
  family.works = [](const ModuleConfig& module, const models::Widths& widths) {
    const auto dense = [&](const char* kind, std::int64_t input) {
      return models::dense_work(module.name + kind, static_cast<double>(input * widths.output),
                                widths.output, static_cast<double>(input));
    };
    std::vector works{dense(".faulty", widths.input)};
    const std::string& fault = module.config.as<FaultyConfig>().fault;
    if (fault == "pretends")
      works.push_back(dense(".faulty", widths.input));
    else if (has_two_layers(fault))
      works.push_back(dense(".second", widths.output));
    return works;
  };
  family.make = [](const ModuleConfig& module, int, std::vector<models::Parameter> parameters) {
    return std::make_unique<FaultyLayer>(module.config.as<FaultyConfig>().fault,
                                         std::move(parameters));
  };
  REQUIRE(models::register_family(std::move(family)).ok());
}

}  // namespace troupe::engine
