#include "models/factory.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "models/built_in_layers.hpp"
#include "models/family/registry.hpp"
#include "models/initial_value.hpp"
#include "models/recomputed_layer.hpp"
#include "runtime/plugins/user_calls.hpp"
#include "runtime/vocabulary/recomputation.hpp"

namespace troupe::models {

namespace {

Parameter make_parameter(const ParameterSpec& spec, double deviation, const LayerOptions& options) {
  if (options.only && !options.only->contains(spec.name)) return {spec.name, {}, spec.tied_use};
  const auto drawn = [&] {
    return initial_value(options.seed, spec.name, spec.shape, spec.initial, deviation,
                         {options.dtype, options.threads})
        .to(options.device);
  };
  auto value =
      options.draws
          ? drawn()
          : at::empty(spec.shape, at::TensorOptions().dtype(options.dtype).device(options.device));
  value.set_requires_grad(options.trainable && spec.initial != Initial::sinusoid);
  return {spec.name, std::move(value), spec.tied_use};
}

std::unique_ptr<Layer> made(const ModuleConfig& module, int index,
                            std::vector<Parameter> parameters) {
  const auto& make = checked_family(module).make;
  if (!make) return make_built_in(module, index, std::move(parameters));
  const plugins::CallingUser call("`make` of family '" + module.family + "'");
  return make(module, index, std::move(parameters));
}

/// How the parameters that a layer says it has are not those that it was made from; empty: they
/// are. Whoever keeps them finds them by their names, and others add them up in their order.
std::string parameters_fault(Layer& layer, const std::vector<ParameterSpec>& specs) {
  const std::vector<Parameter>& own = layer.parameters();
  if (own.size() != specs.size())
    return "it has " + std::to_string(own.size()) + " parameters, and `describe` lists " +
           std::to_string(specs.size());
  for (std::size_t i = 0; i < own.size(); ++i)
    if (own[i].name != specs[i].name)
      return "its parameter '" + own[i].name + "' is where `describe` has '" + specs[i].name + "'";
  return {};
}

}  // namespace

Layer::~Layer() = default;

Result<std::unique_ptr<Layer>> make_layer(const ModuleConfig& module,
                                          const std::vector<ModuleConfig>& all, int layer_index,
                                          const LayerOptions& options) {
  auto description = describe_module(module, all);
  if (!description) return description.error();
  const auto& layers = description.value().layers;
  if (layer_index < 0 || static_cast<std::size_t>(layer_index) >= layers.size())
    return Error{Errc::invalid_argument,
                 "module '" + module.name + "' has layers 0 to " +
                     std::to_string(layers.size() - 1) + ", there is no layer " +
                     std::to_string(layer_index),
                 "modules." + module.name, "choose a layer it has"};
  const auto cannot_make = [&](const std::string& why) {
    return config_error(module, "family",
                        "family '" + module.family + "' cannot make layer " +
                            std::to_string(layer_index) + ": " + why,
                        "correct its `make`");
  };
  try {
    const auto& specs = layers[static_cast<std::size_t>(layer_index)].parameters;
    std::vector<Parameter> parameters;
    for (const auto& spec : specs) {
      parameters.push_back(make_parameter(spec, module.initializer_range, options));
      if (spec.own_update) parameters.back().update = update_rule(module);
    }
    auto layer = made(module, layer_index, std::move(parameters));
    if (layer != nullptr)
      if (const auto fault = parameters_fault(*layer, specs); !fault.empty())
        return cannot_make(fault);
    if (layer != nullptr && options.recompute && is_recomputed(layer_index, layers.size()))
      return recomputed(std::move(layer));
    if (layer != nullptr) return layer;
    return config_error(
        module, "family",
        "family '" + module.family + "' makes no layer " + std::to_string(layer_index),
        "correct its `make`");
  } catch (const c10::Error& error) {  // No memory, or no such device.
    return Error{Errc::unavailable,
                 "layer " + layers[static_cast<std::size_t>(layer_index)].name +
                     " cannot be made: " + error.what_without_backtrace(),
                 "modules." + module.name, "use a smaller model or another device"};
  } catch (const std::exception& error) {  // Of a family that was added.
    return cannot_make(error.what());
  } catch (...) {
    return cannot_make("it throws no std::exception");
  }
}

UpdateRule update_rule(const ModuleConfig& module) {
  return [module](const ParameterUpdate& update) { checked_family(module).update(module, update); };
}

at::ScalarType to_torch(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32: return at::kFloat;
    case Dtype::bf16: return at::kBFloat16;
    case Dtype::fp64: return at::kDouble;
  }
  return at::kFloat;
}

}  // namespace troupe::models
