#include "runtime/data/batches/epochs.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <numeric>

namespace troupe::data {
namespace {

using Numbers = std::vector<std::int64_t>;

DataOptions in_file_order() {
  DataOptions options;
  options.shuffle = false;
  return options;
}

TEST_CASE("epochs that are all alike are what one number says", "[data]") {
  const Epochs epochs(10);
  for (std::int64_t batch = 0; batch < 12; ++batch)
    CHECK(epochs.span(batch, 4) == batch_span(batch, 4, 10));
  CHECK(epochs.places_before(3) == 30);
  CHECK(epochs.batches_before(3, 4) == 9);
  DataOptions options;
  options.seed = 5;
  CHECK(epochs.order(options, 2) == epoch_order(5, 2, 10));
}

TEST_CASE("an epoch that has begun ends with its own records, the next takes all", "[data]") {
  // Epochs of 10 in batches of 4: 3 batches each, 0-5. From epoch 2 on 14: 4 batches each.
  const Epochs epochs = Epochs(10).grown(2, {14});
  CHECK(epochs.span(5, 4) == BatchSpan{1, 8, 10});
  CHECK(epochs.span(6, 4) == BatchSpan{2, 0, 4});
  CHECK(epochs.span(9, 4) == BatchSpan{2, 12, 14});
  CHECK(epochs.span(10, 4) == BatchSpan{3, 0, 4});
  CHECK(epochs.count(1) == 10);
  CHECK(epochs.count(2) == 14);
  CHECK(epochs.newest_count() == 14);
  CHECK(epochs.places_before(1) == 10);
  CHECK(epochs.places_before(2) == 20);
  CHECK(epochs.places_before(4) == 48);
  CHECK(epochs.batches_before(2, 4) == 6);
  CHECK(epochs.batches_before(4, 4) == 14);
  CHECK(epochs.batches_for(10, 4) == 3);
  CHECK(epochs.batches_for(20, 4) == 6);
  CHECK(epochs.batches_for(21, 4) == 7);
  CHECK(epochs.batches_for(34, 4) == 10);
  CHECK(epochs.batches_for(39, 4) == 12);
}

TEST_CASE("the first untouched epoch is the next one, or the one that is about to begin",
          "[data]") {
  const Epochs epochs = Epochs(10).grown(2, {14});
  CHECK(epochs.first_untouched(1, 4) == 1);
  CHECK(epochs.first_untouched(3, 4) == 1);  // Batch 3 is the first one of epoch 1.
  CHECK(epochs.first_untouched(6, 4) == 2);
  CHECK(epochs.first_untouched(9, 4) == 3);
}

TEST_CASE("what had not begun yet when sources grew again never was", "[data]") {
  const Epochs epochs = Epochs(10).grown(1, {12}).grown(3, {14}).grown(3, {20});
  CHECK(epochs.stretches() == std::vector<SourceCounts>{{0, {10}}, {1, {12}}, {3, {20}}});
}

TEST_CASE("each source takes what was appended at its own end", "[data]") {
  // Two and three records; then four and five, and a third source of one.
  const Epochs epochs = Epochs({{0, {2, 3}}}).grown(1, {4, 5, 1});
  CHECK(epochs.order(in_file_order(), 0) == Numbers{0, 1, 4, 5, 6});
  CHECK(epochs.order(in_file_order(), 1) == Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  DataOptions shuffled;
  shuffled.seed = 9;
  auto order = epochs.order(shuffled, 0);
  const auto places = epoch_order(9, 0, 5);
  for (std::size_t i = 0; i < order.size(); ++i)
    CHECK(order[i] == Numbers{0, 1, 4, 5, 6}[static_cast<std::size_t>(places[i])]);
  std::sort(order.begin(), order.end());
  CHECK(order == Numbers{0, 1, 4, 5, 6});
}

TEST_CASE("an epoch of an unknown division has the first records of all", "[data]") {
  const Epochs epochs = Epochs(5).grown(1, {3, 4});
  CHECK(epochs.order(in_file_order(), 0) == Numbers{0, 1, 2, 3, 4});
}

TEST_CASE("batches of growing epochs hold each place once", "[data][property]") {
  const Epochs epochs = Epochs({{0, {7, 4}}, {1, {9, 4}}, {4, {9, 8, 3}}});
  std::int64_t epoch = 0, end = 0;
  for (std::int64_t batch = 0; batch < epochs.batches_before(6, 5); ++batch) {
    const auto span = epochs.span(batch, 5);
    if (span.epoch != epoch) {
      CHECK(end == epochs.count(epoch));
      CHECK(batch == epochs.batches_before(span.epoch, 5));
      CHECK(span.epoch == epoch + 1);
      epoch = span.epoch;
      end = 0;
    }
    CHECK(span.begin == end);
    CHECK(span.size() > 0);
    end = span.end;
  }
}

}  // namespace
}  // namespace troupe::data
