// What one layer costs, and how much of its backward pass freezing leaves (Cornstarch,
// eq. 3.1-3.3).
//
// Pure values; no I/O, clock, randomness, CAF or torch. Thread-safe.

#pragma once

#include <span>
#include <vector>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::scheduler {

/// Cost of one layer for one microbatch on one device. Every field is >= 0.
struct LayerCost {
  double forward_ms = 0;
  double input_grad_ms = 0;   ///< Gradient for the rows that came in (B_d).
  double weight_grad_ms = 0;  ///< Gradient for the parameters (B_w); 0 for a frozen layer.
  Bytes activations;          ///< Held from forward until backward ends.
  Bytes parameters;           ///< This device's share.

  double backward_ms() const { return input_grad_ms + weight_grad_ms; }
  double total_ms() const { return forward_ms + backward_ms(); }

  friend bool operator==(const LayerCost&, const LayerCost&) = default;
};

/// `full` without what the layer's place in the model makes unnecessary: no weight gradient where
/// nothing is trainable, no input gradient where nothing trainable lies strictly before, in any
/// module. (Eq. 3.3 as printed also counts the first trainable layer's own input gradient; it is
/// not needed.) Activations drop to 0 where there is no backward at all: nothing waits for it.
LayerCost frozen_aware(LayerCost full, const ModelGraph& graph, LayerId layer);

/// Costs of all layers of a module after `frozen_aware`, in order.
/// REQUIRES: `full.size()` equals the module's layer count.
std::vector<LayerCost> frozen_aware(std::span<const LayerCost> full, const ModelGraph& graph,
                                    ModuleId module);

}  // namespace troupe::scheduler
