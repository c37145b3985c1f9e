#include "runtime/data/batches/epoch_order.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/vocabulary/random.hpp"

namespace troupe::data {

std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  // The epoch is mixed before it meets the seed: seed s, epoch 1 must not be seed s + 1, epoch 0.
  Random generator(seed ^ Random(static_cast<std::uint64_t>(epoch)).next());
  for (std::size_t left = order.size(); left > 1; --left)
    std::swap(order[left - 1], order[generator.below_unbiased(left)]);
  return order;
}

std::vector<std::int64_t> record_order(const DataOptions& options, std::int64_t epoch,
                                       std::int64_t count) {
  if (options.shuffle) return epoch_order(options.seed, epoch, count);
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return order;
}

std::int64_t batches_per_epoch(std::int64_t count, std::int64_t batch_size) {
  return (count + batch_size - 1) / batch_size;
}

BatchSpan batch_span(std::int64_t batch, std::int64_t batch_size, std::int64_t count) {
  const std::int64_t per_epoch = batches_per_epoch(count, batch_size);
  const std::int64_t begin = batch % per_epoch * batch_size;
  return {batch / per_epoch, begin, std::min(begin + batch_size, count)};
}

}  // namespace troupe::data
