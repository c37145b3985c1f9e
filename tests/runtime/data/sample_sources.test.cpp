#include "runtime/data/batches/sample_sources.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::data {
namespace {

const std::vector<NodeId> kAll, kFirst{NodeId{0}}, kLast{NodeId{1}, NodeId{2}};

TEST_CASE("a place of the order is of the source of its record", "[data]") {
  DataOptions options;
  options.shuffle = false;
  const SampleSources sources(options, Epochs(std::vector<SourceCounts>{{0, {2, 1, 3}}}),
                              {kFirst, kAll, kLast});
  CHECK_FALSE(sources.all_seen());
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    CHECK(sources.seen_by(epoch, 0) == kFirst);
    CHECK(sources.seen_by(epoch, 1) == kFirst);
    CHECK(sources.seen_by(epoch, 2) == kAll);
    CHECK(sources.seen_by(epoch, 3) == kLast);
    CHECK(sources.seen_by(epoch, 5) == kLast);
  }
}

TEST_CASE("shuffled places and records that were appended are found as the loader finds them",
          "[data]") {
  DataOptions options;
  options.seed = 9;
  const Epochs epochs(std::vector<SourceCounts>{{0, {2, 2}}, {1, {5, 3}}});
  const SampleSources sources(options, epochs, {kFirst, kLast});
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const auto order = epochs.order(options, epoch);
    for (std::size_t place = 0; place < order.size(); ++place)
      CHECK(sources.seen_by(epoch, static_cast<std::int64_t>(place)) ==
            (order[place] < 5 ? kFirst : kLast));
  }
}

TEST_CASE("where every node sees every source nobody asks for an order", "[data]") {
  CHECK(SampleSources().all_seen());
  const SampleSources sources({}, Epochs(0), {kAll, kAll});
  CHECK(sources.all_seen());
  CHECK(sources.seen_by(0, 99).empty());
}

}  // namespace
}  // namespace troupe::data
