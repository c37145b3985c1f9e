#include "models/batch_cache.hpp"

#include <c10/util/Exception.h>

#include <numeric>

namespace troupe::models {

namespace {

// `places`: what the table is made from, besides the grids.
template <class Make>
const kernels::RotaryTable& cached(const PackedBatch& batch,
                                   const std::vector<std::int64_t>& places,
                                   const RotaryConfig& config, Make make) {
  if (!batch.cache) batch.cache = std::make_shared<BatchCache>();
  auto& entry = batch.cache->rotary;
  if (!entry || entry->config != config || entry->places != places || entry->grids != batch.grids)
    entry = BatchCache::Rotary{config, places, batch.grids, make()};
  return entry->table;
}

}  // namespace

const kernels::RotaryTable& text_rotary(const PackedBatch& batch, const RotaryConfig& config) {
  return cached(batch, batch.positions, config, [&] {
    const auto rows =
        std::accumulate(batch.segments.begin(), batch.segments.end(), std::int64_t{0});
    TORCH_CHECK_VALUE(static_cast<std::int64_t>(batch.positions.size()) == rows, "there are ",
                      batch.positions.size(), " positions for ", rows, " rows");
    return kernels::text_rotary(batch.positions, config.head_dim, config.theta, config.dtype,
                                config.device);
  });
}

const kernels::RotaryTable& grid_rotary(const PackedBatch& batch, const RotaryConfig& config,
                                        std::int64_t merge) {
  return cached(batch, batch.segments, config, [&] {
    TORCH_CHECK_VALUE(batch.grids.size() == batch.segments.size(), "there are ", batch.grids.size(),
                      " grids for ", batch.segments.size(), " images");
    std::vector<std::int64_t> heights, widths;
    for (std::size_t i = 0; i < batch.grids.size(); ++i) {
      const auto [height, width] = batch.grids[i];
      TORCH_CHECK_VALUE(
          height * width == batch.segments[i] && height % merge == 0 && width % merge == 0,
          "image ", i, " has ", batch.segments[i], " patches and a grid of ", height, " x ", width,
          ", which must be its product and multiples of ", merge);
      heights.push_back(height);
      widths.push_back(width);
    }
    return kernels::grid_rotary(heights, widths, merge, config.head_dim, config.theta, config.dtype,
                                config.device);
  });
}

}  // namespace troupe::models
