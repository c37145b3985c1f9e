// Rows of layers cut over devices so that the busiest of them has as little as can be.
//
// Pure. Internal to the shapes of layouts; use layout_shapes.hpp.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/layout/layout_shapes.hpp"

namespace troupe::scheduler {

/// A row of layers that is cut as a whole, and the cuts known so far.
struct LayerRow {
  struct Cut {
    std::vector<std::int32_t> cuts;
    std::vector<double> loads;  ///< Per piece.
  };

  std::vector<std::size_t> layers;  ///< Indices into `LayerWeights`.
  std::vector<double> sums{0};      ///< Of their work, before each layer and after the last.
  double largest_ms = 0;            ///< Of a layer.
  std::vector<Cut> even;            ///< By pieces: cuts for devices that have nothing else to do.

  void add(std::size_t layer, const LayerWeights& weights) {
    layers.push_back(layer);
    sums.push_back(sums.back() + weights.work_ms[layer]);
    largest_ms = std::max(largest_ms, weights.work_ms[layer]);
  }
  double work_ms() const { return sums.back(); }
};

/// Cuts a row over `count` devices from the first one of `track` on, on top of their loads, to
/// which it adds; `track` takes the row's layers and cuts.
void cut_row(LayerRow& row, const LayerWeights& weights, std::int32_t count, Track& track,
             std::vector<double>& loads);

}  // namespace troupe::scheduler
