#include "models/family/block_work.hpp"

#include <algorithm>
#include <utility>

namespace troupe::models {

LayerWork dense_work(std::string kind, double weights, std::int64_t width, double kept) {
  LayerWork work;
  work.kind = std::move(kind);
  work.weights = work.used_weights = weights;
  work.width = width;
  work.activation_elements = kept;
  return work;
}

LayerWork block_work(std::string kind, std::int64_t width, const AttentionShape& attention,
                     double feed_forward, bool gated) {
  const auto columns = static_cast<double>(width);
  const double queries = static_cast<double>(attention.heads * attention.head_dim);
  const double kept =
      2 + 2 * static_cast<double>(attention.kv_heads) / static_cast<double>(attention.heads);
  const double matrices = gated ? 3 : 2;
  LayerWork work =
      dense_work(std::move(kind), columns * queries * kept + columns * feed_forward * matrices,
                 width, columns * 4 + queries * kept + feed_forward * matrices);
  work.attention = attention;
  return work;
}

std::vector<LayerWork> surrounded(LayerWork first, const LayerWork& inner, std::int32_t count,
                                  LayerWork last) {
  std::vector<LayerWork> works{std::move(first)};
  works.insert(works.end(), static_cast<std::size_t>(std::max(count, 0)), inner);
  works.push_back(std::move(last));
  return works;
}

}  // namespace troupe::models
