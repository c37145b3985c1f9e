#include "runtime/data/epoch_order.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe::data {
namespace {

/// SplitMix64 (Steele, Lea and Flood, 2014): 64 well-mixed bits per step from any seed.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t state) : state_(state) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  /// Uniform in [0, bound): Lemire's multiply-and-reject (2019). REQUIRES: bound >= 1.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t reject_below = (0 - bound) % bound;  // 2^64 mod bound.
    while (true) {
      const auto product = static_cast<unsigned __int128>(next()) * bound;
      if (static_cast<std::uint64_t>(product) >= reject_below)
        return static_cast<std::uint64_t>(product >> 64);
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace

std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  // The epoch is mixed before it meets the seed: seed s, epoch 1 must not be seed s + 1, epoch 0.
  SplitMix64 generator(seed ^ SplitMix64(static_cast<std::uint64_t>(epoch)).next());
  for (std::size_t left = order.size(); left > 1; --left)
    std::swap(order[left - 1], order[generator.below(left)]);
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
