#include "models/factory.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <exception>
#include <new>

#include "models/built_in_layers.hpp"
#include "models/family/registry.hpp"
#include "models/initial_value.hpp"
#include "models/recomputed_layer.hpp"
#include "runtime/plugins/user_calls.hpp"
#include "runtime/vocabulary/first_line.hpp"
#include "runtime/vocabulary/library_words.hpp"
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

Error cannot_make(const ModuleConfig& module, int index, const std::string& why) {
  return config_error(
      module, "family",
      "family '" + module.family + "' cannot make layer " + std::to_string(index) + ": " + why,
      "correct its `make`");
}

/// In a handler, where a layer is made: what is thrown as an error. `by_family`: by its own `make`,
/// not by what the product makes for it.
Error thrown_fault(const ModuleConfig& module, int index, const std::string& layer,
                   bool by_family) {
  const auto no_place = [&](const std::string& why) {
    return Error{Errc::unavailable,
                 "layer " + layer + " of family '" + module.family + "' cannot be made: " + why,
                 "modules." + module.name, "use a smaller model or another device"};
  };
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return no_place("out of memory");
  } catch (const c10::Error& error) {
    const std::string words = error.what_without_backtrace();
    if (!by_family || is_about_memory(words)) return no_place(first_line(words));
    return cannot_make(module, index, "LibTorch: " + first_line(words));
  } catch (const std::exception& error) {
    return cannot_make(module, index, error.what());
  } catch (...) {
    return cannot_make(module, index, "it throws no std::exception");
  }
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
  const auto& [name, specs] = layers[static_cast<std::size_t>(layer_index)];
  bool by_family = false;
  try {
    std::vector<Parameter> parameters;
    for (const auto& spec : specs) {
      parameters.push_back(make_parameter(spec, module.initializer_range, options));
      if (spec.own_update) parameters.back().update = update_rule(module);
    }
    by_family = static_cast<bool>(checked_family(module).make);
    auto layer = made(module, layer_index, std::move(parameters));
    if (layer != nullptr)
      if (const auto fault = parameters_fault(*layer, specs); !fault.empty())
        return cannot_make(module, layer_index, fault);
    if (layer != nullptr && options.recompute && is_recomputed(layer_index, layers.size()))
      return recomputed(std::move(layer));
    if (layer != nullptr) return layer;
    return config_error(
        module, "family",
        "family '" + module.family + "' makes no layer " + std::to_string(layer_index),
        "correct its `make`");
  } catch (...) {
    return thrown_fault(module, layer_index, name, by_family);
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
