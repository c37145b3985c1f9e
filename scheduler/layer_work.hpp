// What layers compute and move, whatever the device: the one place that knows how many operations a
// layer of each family takes. Computed profiles (roofline.hpp) and the operations of a step
// (model_flops.hpp) are both made of it.
//
// Pure; thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/model_graph.hpp"

namespace troupe::scheduler {

/// What one kind of layer computes and moves. A row is one between layers: a patch, a pair of mel
/// frames, a token.
struct LayerWork {
  std::string kind;
  double weights = 0;  ///< Elements of its matrices.
  /// Products of weights and rows: 2 flops each per row. A merger multiplies less than its weights,
  /// since four patches make one row; a convolution over frames more, since two make one.
  double used_weights = 0;
  /// Of the used ones, those that take the rows as they came in, without a norm that learns before
  /// them: what they hand back is wanted only by what lies before the layer.
  double entry_weights = 0;
  double attention_flops = 0;      ///< Forward flops per pair of rows that attend.
  bool causal = false;             ///< A row attends to itself and those before it, else to all.
  std::int64_t width = 0;          ///< Columns of its rows, for collectives.
  double activation_elements = 0;  ///< Kept per row until the backward.

  /// Pairs of rows that attend in one sequence of this length.
  double attention_pairs(double length) const {
    return causal ? length * (length + 1) / 2 : length * length;
  }
};

/// Work of every layer of a module, in order: embedding, blocks, head (see `VisionConfig` and so
/// on). `input_width` is the width of the rows that come in, for a projector.
std::vector<LayerWork> layer_works(const ModuleConfig& module, std::int64_t input_width = 0);

/// The same for each module of a model, in the graph's order; widths that a projector leaves out
/// come from its neighbours. REQUIRES: `modules` has a configuration for each module of the graph.
std::vector<std::vector<LayerWork>> model_works(const ModelGraph& graph,
                                                const std::vector<ModuleConfig>& modules);

}  // namespace troupe::scheduler
