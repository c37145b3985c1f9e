// Costs of the layers that several families are made of.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/layer_work.hpp"

namespace troupe::models {

/// A layer whose matrices all rows pass once.
LayerWork dense_work(std::string kind, double weights, std::int64_t width, double kept);

/// A transformer block: rows of `width` columns, an attention, a feed-forward of `feed_forward`
/// columns; gated as SwiGLU (three matrices) or plain (two).
LayerWork block_work(std::string kind, std::int64_t width, const AttentionShape& attention,
                     double feed_forward, bool gated);

/// `first`, `count` times `inner`, `last`.
std::vector<LayerWork> surrounded(LayerWork first, const LayerWork& inner, std::int32_t count,
                                  LayerWork last);

}  // namespace troupe::models
