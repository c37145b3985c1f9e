// The layers and parameters of a module as names and shapes: what `build_graph` counts and
// `make_layer` allocates. Values, no tensors.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::models {

/// How a parameter starts.
enum class Initial : std::uint8_t {
  normal,    ///< Mean 0, deviation `initializer_range`.
  ones,      ///< Scales of norms.
  zeros,     ///< Biases.
  sinusoid,  ///< Whisper's positions: sines, then cosines. Never trained.
};

struct ParameterSpec {
  std::string name;  ///< Full name, as in `Parameter`.
  std::vector<std::int64_t> shape;
  Initial initial = Initial::normal;
  bool tied_use = false;  ///< As in `Parameter`.

  std::int64_t elements() const;
};

struct LayerDescription {
  std::string name;  ///< As in `LayerSpec`.
  std::vector<ParameterSpec> parameters;
};

struct ModuleDescription {
  std::vector<LayerDescription> layers;
  std::int64_t hidden_width = 0;  ///< As in `ModuleSpec`.
  std::int64_t output_width = 0;  ///< As in `ModuleSpec`; 0 for the llm, which hands on nothing.
};

/// Layers of one module; `all` are the modules of the model.
///
/// Errors:
/// - invalid_argument: unknown family, another kind of module than the family, or sizes that do
///   not fit. Names the module, the field, both values, and the fix.
Result<ModuleDescription> describe_module(const ModuleConfig& module,
                                          const std::vector<ModuleConfig>& all);

/// The `weight` and `bias` of a linear layer [out, in], or of a norm (`out` only).
void add_linear(LayerDescription& layer, const std::string& name, std::int64_t out,
                std::int64_t in);
void add_norm(LayerDescription& layer, const std::string& name, std::int64_t width);

}  // namespace troupe::models
