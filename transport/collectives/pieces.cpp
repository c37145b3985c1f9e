#include "transport/collectives/pieces.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::transport {
namespace {

/// Sums of fewer elements are not worth a message.
constexpr std::size_t kShardMin = 4096;

}  // namespace

std::vector<std::size_t> starts_of(std::span<const std::size_t> sizes) {
  std::vector<std::size_t> starts(sizes.size() + 1);
  std::partial_sum(sizes.begin(), sizes.end(), starts.begin() + 1);
  return starts;
}

std::vector<std::size_t> times(std::span<const std::size_t> counts, std::size_t factor) {
  std::vector<std::size_t> products(counts.size());
  std::ranges::transform(counts, products.begin(), [=](auto count) { return count * factor; });
  return products;
}

std::vector<std::size_t> shard_counts(std::size_t count, std::size_t ranks) {
  const auto shard = std::max(kShardMin, (count + ranks - 1) / ranks);
  std::vector<std::size_t> counts(ranks);
  for (auto& own : counts) {
    own = std::min(shard, count);
    count -= own;
  }
  return counts;
}

}  // namespace troupe::transport
