#include "scheduler/layout/partition.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <limits>
#include <random>

namespace troupe::scheduler {
namespace {

using Catch::Matchers::ContainsSubstring;

double slowest(const std::vector<double>& costs, const std::vector<std::int32_t>& cuts) {
  double slowest = 0;
  for (std::size_t stage = 0; stage + 1 < cuts.size(); ++stage) {
    double sum = 0;
    for (auto layer = cuts[stage]; layer < cuts[stage + 1]; ++layer)
      sum += costs[static_cast<std::size_t>(layer)];
    slowest = std::max(slowest, sum);
  }
  return slowest;
}

// The recurrence of eq. 4.1, term by term.
double least_maximum(const std::vector<double>& costs, std::size_t stages) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> best(costs.size() + 1, infinity);
  best[0] = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    std::vector<double> next(costs.size() + 1, infinity);
    for (std::size_t begin = 0; begin < costs.size(); ++begin) {
      double sum = 0;
      for (std::size_t end = begin + 1; end <= costs.size(); ++end) {
        sum += costs[end - 1];
        next[end] = std::min(next[end], std::max(best[begin], sum));
      }
    }
    best = next;
  }
  return best.back();
}

TEST_CASE("six growing layers are cut where the published templates cut them", "[scheduler]") {
  // Layer i costs 2(i+1): 2 4 6 8 10 12. Two stages: 20 | 22. Three: 12 | 18 | 12.
  // Four: 12 | 8 | 10 | 12.
  const std::vector<double> costs{2, 4, 6, 8, 10, 12};
  CHECK(partition(costs, 2).value() == Partition{{0, 4, 6}, 22});
  CHECK(partition(costs, 3).value() == Partition{{0, 3, 5, 6}, 18});
  CHECK(partition(costs, 4).value() == Partition{{0, 3, 4, 5, 6}, 12});
  CHECK(partition(costs, 1).value() == Partition{{0, 6}, 42});
  CHECK(partition(costs, 6).value() == Partition{{0, 1, 2, 3, 4, 5, 6}, 12});
}

TEST_CASE("every stage gets a layer even where the first could hold all", "[scheduler]") {
  CHECK(partition(std::vector<double>{0, 0, 0}, 3).value() == Partition{{0, 1, 2, 3}, 0});
  // The 9 alone decides; the zeros still form stages of their own.
  CHECK(partition(std::vector<double>{9, 0, 0, 0}, 3).value() == Partition{{0, 2, 3, 4}, 9});
}

TEST_CASE("a partition that cannot be names the nearest that can", "[scheduler][errors]") {
  const auto more = partition(std::vector<double>{1, 2}, 3);
  REQUIRE_FALSE(more.ok());
  CHECK(more.error().code == Errc::infeasible);
  CHECK_THAT(more.error().message, ContainsSubstring("2 layers cannot form 3 stages"));
  CHECK_THAT(more.error().fix, ContainsSubstring("2 stages"));
  CHECK_THAT(partition(std::vector<double>{1, 2}, 0).error().fix, ContainsSubstring("1 stages"));
  CHECK(partition({}, 1).error().code == Errc::infeasible);
}

TEST_CASE("a cost that is not a number is refused by its index", "[scheduler][errors]") {
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const auto result = partition(std::vector<double>{1, bad}, 1);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == Errc::invalid_argument);
    CHECK_THAT(result.error().where, ContainsSubstring("costs[1]"));
  }
}

TEST_CASE("a million layers are partitioned exactly", "[scheduler]") {
  const std::vector<double> costs(1'000'000, 1.0);
  const auto result = partition(costs, 1000);
  REQUIRE(result.ok());
  CHECK(result.value().max == 1000);
  CHECK(slowest(costs, result.value().cuts) == 1000);
}

TEST_CASE("partition agrees with the recurrence on random layers", "[scheduler][property]") {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const std::size_t layer_count = 1 + random() % 10;
    const std::size_t stage_count = 1 + random() % layer_count;
    std::vector<double> costs;
    // Small integers make ties and zeros common; halves of the seeds use fractions.
    for (std::size_t i = 0; i < layer_count; ++i)
      costs.push_back(seed % 2 ? static_cast<double>(random() % 5)
                               : static_cast<double>(random()) / 1e9);
    const auto result = partition(costs, static_cast<std::int64_t>(stage_count));
    CAPTURE(seed, costs, stage_count);
    REQUIRE(result.ok());
    const auto& [cuts, max] = result.value();
    REQUIRE(cuts.size() == stage_count + 1);
    REQUIRE(cuts.front() == 0);
    REQUIRE(cuts.back() == static_cast<std::int32_t>(layer_count));
    REQUIRE(std::adjacent_find(cuts.begin(), cuts.end(), std::greater_equal<>{}) == cuts.end());
    REQUIRE(max == slowest(costs, cuts));
    REQUIRE(max == least_maximum(costs, stage_count));
  }
}

}  // namespace
}  // namespace troupe::scheduler
