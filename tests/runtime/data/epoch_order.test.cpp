#include "runtime/data/batches/epoch_order.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <numeric>

namespace troupe::data {
namespace {

TEST_CASE("epoch_order is fixed by seed and epoch on every platform", "[data]") {
  // Worked by tests/reference/data/order_reference.py, an independent implementation.
  CHECK(epoch_order(42, 0, 8) == std::vector<std::int64_t>{7, 0, 4, 5, 6, 1, 3, 2});
  CHECK(epoch_order(42, 1, 8) == std::vector<std::int64_t>{6, 7, 2, 0, 1, 5, 4, 3});
  CHECK(epoch_order(42, 0, 0).empty());
  CHECK(epoch_order(42, 0, 1) == std::vector<std::int64_t>{0});
}

TEST_CASE("epoch_order is a permutation that changes with seed and epoch", "[data][property]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(0, 20)));
  std::vector<std::int64_t> sorted(257);
  std::iota(sorted.begin(), sorted.end(), std::int64_t{0});

  auto order = epoch_order(seed, 3, 257);
  CHECK(order != epoch_order(seed, 4, 257));
  CHECK(order != epoch_order(seed + 1, 3, 257));
  CHECK(epoch_order(seed, 1, 257) != epoch_order(seed + 1, 0, 257));
  std::sort(order.begin(), order.end());
  CHECK(order == sorted);
}

TEST_CASE("epoch_order puts every record at every place about equally often", "[data][property]") {
  // 6 records, 6000 epochs: a place expects each record 1000 times; the standard deviation is
  // sqrt(6000 * 1/6 * 5/6) = 29, and 150 is more than five of them.
  std::vector<std::vector<int>> seen(6, std::vector<int>(6));
  for (std::int64_t epoch = 0; epoch < 6000; ++epoch) {
    const auto order = epoch_order(7, epoch, 6);
    for (std::size_t place = 0; place < 6; ++place)
      ++seen[place][static_cast<std::size_t>(order[place])];
  }
  for (const auto& place : seen)
    for (const int count : place) CHECK(std::abs(count - 1000) < 150);
}

TEST_CASE("batch_span cuts each epoch and runs on across epochs", "[data]") {
  // 10 records in batches of 4: [0,4) [4,8) [8,10), then the next epoch.
  CHECK(batches_per_epoch(10, 4) == 3);
  CHECK(batch_span(0, 4, 10) == BatchSpan{0, 0, 4});
  CHECK(batch_span(2, 4, 10) == BatchSpan{0, 8, 10});
  CHECK(batch_span(3, 4, 10) == BatchSpan{1, 0, 4});
  CHECK(batch_span(8, 4, 10) == BatchSpan{2, 8, 10});
  CHECK(batch_span(5, 16, 10) == BatchSpan{5, 0, 10});
  CHECK(batches_per_epoch(8, 4) == 2);
}

}  // namespace
}  // namespace troupe::data
