// What layers compute and move, whatever the device. A family says it of its layers
// (models/family/family.hpp); computed profiles, measured ones and the operations of a step are
// made of it.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/vocabulary/logit_chunks.hpp"

namespace troupe {

/// Heads of a layer with attention.
struct AttentionShape {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = false;  ///< A row attends to itself and those before it, else to all.
  /// Of a causal one: rows of media attend by `AttentionRule::modality`.
  bool by_modality = false;

  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

/// What one kind of layer computes and moves. A row is one between layers: a patch, a pair of mel
/// frames, a token.
struct LayerWork {
  std::string kind;    ///< Layers of one kind cost the same: `llm.block`.
  double weights = 0;  ///< Elements of its matrices.
  /// Products of weights and rows: 2 flops each per row. A merger multiplies less than its weights,
  /// since four patches make one row; a convolution over frames more, since two make one.
  double used_weights = 0;
  /// Of the used ones, those that take the rows as they came in, without a norm that learns before
  /// them: what they hand back is wanted only by what lies before the layer.
  double entry_weights = 0;
  std::optional<AttentionShape> attention = {};
  std::int64_t width = 0;          ///< Columns of its rows, for collectives.
  double activation_elements = 0;  ///< Kept per row until the backward.
  std::int64_t joined_rows = 1;    ///< Rows that become one before its matrices see them.
  /// Of a head: the vocabulary. Where all rows fit into one chunk (`LogitChunks`), so many elements
  /// are kept per row besides. Else none are, but a row of `width`: the input gradient, a product
  /// of the forward then; and the product of the forward is computed again for the weight gradient.
  std::int64_t logits = 0;

  friend bool operator==(const LayerWork&, const LayerWork&) = default;

  /// Forward flops per pair of rows that attend: scores and values take 2 each per column.
  double attention_flops() const {
    return attention ? 4.0 * static_cast<double>(attention->heads * attention->head_dim) : 0;
  }
  /// Pairs of rows that attend in one sequence of this length, in the llm one of text
  /// (`seen_pairs` counts what media change).
  double attention_pairs(double length) const {
    return attention && attention->causal ? length * (length + 1) / 2 : length * length;
  }
  /// Into how many chunks a head cuts the logits of so many rows, of which a device has
  /// `logits` / `tp`; 1 for other layers. rows >= 0.
  std::int64_t logit_chunks(double rows, double element_bytes, std::int32_t tp = 1) const {
    if (logits == 0) return 1;
    const auto count = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(rows)));
    const auto at_once = LogitChunks{}.at_once(std::max<std::int64_t>(1, logits / tp),
                                               static_cast<std::int64_t>(element_bytes));
    return (count + at_once - 1) / at_once;
  }
};

}  // namespace troupe
