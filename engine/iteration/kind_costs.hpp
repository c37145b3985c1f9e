// What a kind of stages costs where that is not what its layers cost: values that its author states
// it by (engine/execution/stage_kinds.hpp). No tensors.

#pragma once

#include <functional>
#include <string>

#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/parallelism.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

/// What a layer takes on one device; finite, and none of it below zero.
struct LayerCosts {
  double forward_ms = 0;
  double input_gradient_ms = 0;
  double weight_gradient_ms = 0;
  double kept_bytes = 0;  ///< From the forward of a part to its last backward.
};

/// For what costs are asked.
struct CostedRows {
  const ModuleConfig& module;  ///< Whose layer it is.
  const std::string& layer;    ///< Its kind, as profiles have it: `vision.block`.
  /// Of one sequence, between layers; of the llm's last layer, trained tokens. >= 1.
  TokenCount rows = 1;
  /// Of the stage's devices, which share it.
  Parallelism parallelism = {};
  /// What attention takes, by the length of each sequence; else all the rest, by the rows of the
  /// whole microbatch. A layer takes the sum. Not asked for of layers without attention.
  bool is_attention = false;
};

/// What a layer takes in a stage, of what it takes by itself (`own`): measured or computed, and
/// with recomputation where the job recomputes.
using CostsOfKind = std::function<LayerCosts(const LayerCosts& own, const CostedRows& rows)>;

/// Bytes that a stage holds for a layer as long as it is there, on each of its devices, beside
/// parameters, gradients and moments; not below zero.
using BytesOfKind = std::function<Bytes(const LayerSpec& layer, const ModuleConfig& module)>;

}  // namespace troupe::engine
