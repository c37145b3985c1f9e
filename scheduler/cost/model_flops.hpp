// The floating-point operations that a step's samples need: what throughput per device and model
// FLOPs utilization (MFU) are made of.
//
// Counted is what the mathematics asks for, whatever the plan: padding, recomputation and a
// second look at the same rows are work, but no progress. Pure; thread-safe.

#pragma once

#include <span>
#include <vector>

#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/cost/layer_work.hpp"

namespace troupe::scheduler {

/// Per layer with U products per row, E of them with rows as they came in, R rows, P pairs of rows
/// that attend and A flops per pair:
///
///     forward            2 U R + A P
///     weight gradient    2 U R             where the layer trains
///     input gradient     2 (U - E) R + 2 A P   where it trains, or something before it does
///                        2 E R                 where something before it does
///
/// Rows are those between layers; at the llm's last layer the trained tokens, as it computes no
/// other. Pairs are counted per sequence (a picture, a window of sound, a sample at the llm), those
/// that see each other under the causal mask, or the mask by modality, where there is one. Before
/// it: on the way of this sample's rows; nothing of a frozen llm is differentiated for a sample
/// without media. Look-ups, norms, activations, softmax and the optimizer are left out, as is
/// usual: their operations are few.
class ModelFlops {
 public:
  /// REQUIRES: `modules` has a configuration for each module of the graph.
  ModelFlops(ModelGraph graph, const std::vector<ModuleConfig>& modules);

  /// Forward and backward of these samples. Cost: O(samples x layers).
  double of(std::span<const SampleShape> samples) const;

 private:
  ModelGraph graph_;
  std::vector<std::vector<LayerWork>> works_;  ///< Per module, per layer.
};

}  // namespace troupe::scheduler
