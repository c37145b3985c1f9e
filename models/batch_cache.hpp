// Values that several layers derive from the same batch, computed once.
//
// Internal to models/. Not thread-safe: one batch object belongs to one thread.

#pragma once

#include <optional>
#include <vector>

#include "kernels/rotary.hpp"
#include "models/layer.hpp"

namespace troupe::models {

/// What a rotary table depends on besides the batch.
struct RotaryConfig {
  std::int64_t head_dim = 0;
  double theta = 10000;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::Device("cpu");

  friend bool operator==(const RotaryConfig&, const RotaryConfig&) = default;
};

/// One entry per kind of value; recomputed when what it was made from has changed.
class BatchCache {
 public:
  struct Rotary {
    RotaryConfig config;
    std::vector<std::int64_t> places;  // Positions of text, segments of pictures.
    std::vector<GridSize> grids;
    kernels::RotaryTable table;
  };
  std::optional<Rotary> rotary;
};

/// 1-D positions, those of the batch.
/// Throws c10::Error where there is not one per row of the segments.
const kernels::RotaryTable& text_rotary(const PackedBatch& batch, const RotaryConfig& config);

/// 2-D positions of each image's patches, in merge x merge blocks.
/// Throws c10::Error where grids and segments disagree, or a grid is no multiple of `merge`.
const kernels::RotaryTable& grid_rotary(const PackedBatch& batch, const RotaryConfig& config,
                                        std::int64_t merge);

}  // namespace troupe::models
