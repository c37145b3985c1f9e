// The layers and parameters of a module as names and shapes: what `build_graph` counts and
// `make_layer` allocates. Values, no tensors.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::models {

/// How a parameter starts.
enum class Initial : std::uint8_t {
  normal,    ///< Mean 0, deviation `initializer_range`.
  ones,      ///< Scales of norms.
  zeros,     ///< Biases.
  sinusoid,  ///< Whisper's positions: sines, then cosines. Never trained.
};

/// Along which dimension of a matrix [out, in] tensor-parallel ranks share it.
struct TensorSplit {
  enum class By /** Which dimension. */ : std::uint8_t {
    none,    ///< Every rank holds the whole.
    output,  ///< Column parallel: a rank makes some of the columns of what comes out.
    input    ///< Row parallel: it reads what the matrices before it, split by output, have made;
             ///< what comes out is summed over the ranks.
  };
  By by = By::none;
  /// Parts that may not be cut, as heads; more ranks than parts have the same ones. 0: any column.
  std::int64_t parts = 0;
  bool padded = false;  ///< Padded to a multiple of the ranks, as a vocabulary is.
};
/// A parameter before it has values.
struct ParameterSpec {
  std::string name;  ///< Full name, as in `Parameter`.
  std::vector<std::int64_t> shape;
  Initial initial = Initial::normal;
  bool tied_use = false;  ///< As in `Parameter`.
  TensorSplit split = {};
  bool own_update = false;  ///< The family moves it (`Family::update`), and not AdamW.

  std::int64_t elements() const;  ///< Product of its shape.
};
/// A layer and its parameters, in the order in which `Family::make` gets them.
struct LayerDescription {
  std::string name;  ///< As in `LayerSpec`.
  std::vector<ParameterSpec> parameters;
};
/// All layers of a module, in the order of execution.
struct ModuleDescription {
  std::vector<LayerDescription> layers;
  std::int64_t hidden_width = 0;  ///< As in `ModuleSpec`.
  std::int64_t output_width = 0;  ///< As in `ModuleSpec`; 0 for the llm, which hands on nothing.
};

/// Layers to be filled: MODULE.FIRST, `count` times MODULE.INNER.0 and so on, MODULE.LAST.
inline std::vector<LayerDescription> surrounded_layers(const std::string& module,
                                                       const std::string& first,
                                                       const std::string& inner, std::int32_t count,
                                                       const std::string& last) {
  std::vector<LayerDescription> layers{{module + "." + first, {}}};
  for (std::int32_t i = 0; i < count; ++i)
    layers.push_back({module + "." + inner + "." + std::to_string(i), {}});
  layers.push_back({module + "." + last, {}});
  return layers;
}

/// The `weight` and `bias` of a linear layer [out, in], or of a norm (`out` only).
void add_linear(LayerDescription& layer, const std::string& name, std::int64_t out, std::int64_t in,
                TensorSplit split = {});
void add_norm(LayerDescription& layer, const std::string& name, std::int64_t width);  ///< [width]

}  // namespace troupe::models
