#include "balancer/microbatches/bottleneck_match.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <numeric>
#include <set>

#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {
namespace {

double largest_cost(const std::vector<std::vector<double>>& pair_cost,
                    const std::vector<double>& lone_cost,
                    const std::vector<std::int32_t>& partner) {
  double largest = 0;
  for (std::size_t row = 0; row < lone_cost.size(); ++row)
    largest = std::max(
        largest, std::min(lone_cost[row], pair_cost[row][static_cast<std::size_t>(partner[row])]));
  return largest;
}

TEST_CASE("the published table has threshold 6", "[balancer]") {
  // Entrain figure 4.10: rows are microbatches 1, 2, 5, columns 3, 4, 6; each entry is the larger
  // of the two loads after deferral. 1-4, 2-3, 5-6 gives 9; 1-6, 2-3, 5-4 gives 6, 6, 6.
  const std::vector<std::vector<double>> pair_cost{{6, 6, 6}, {6, 6, 7}, {8, 6, 9}};
  const auto matching = bottleneck_match(pair_cost, {7, 9, 10});
  CHECK(matching.threshold == 6);
  CHECK(matching.partner == std::vector<std::int32_t>{2, 0, 1});
}

TEST_CASE("a row that is cheap alone takes what is left", "[balancer]") {
  const auto matching = bottleneck_match({{9, 3}, {9, 9}}, {8, 2});
  CHECK(matching.threshold == 3);
  CHECK(matching.partner == std::vector<std::int32_t>{1, 0});
  CHECK(matching.critical == std::vector<bool>{true, false});
}

TEST_CASE("no rows make an empty matching", "[balancer]") {
  CHECK(bottleneck_match({}, {}).partner.empty());
}

TEST_CASE("the threshold is the least over all matchings", "[balancer][property]") {
  const auto seed = GENERATE(range(0u, 500u));
  Random random(seed);
  const std::size_t rows = 1 + random.below(5);
  const std::size_t columns = rows + random.below(2);
  std::vector<std::vector<double>> pair_cost(rows, std::vector<double>(columns));
  std::vector<double> lone_cost(rows);
  for (auto& cost : lone_cost) cost = static_cast<double>(random.below(20));
  for (auto& row : pair_cost)
    for (auto& cost : row) cost = static_cast<double>(random.below(20));
  const auto matching = bottleneck_match(pair_cost, lone_cost);
  std::vector<std::int32_t> order(columns);
  std::iota(order.begin(), order.end(), 0);
  double best = HUGE_VAL;
  do {
    best = std::min(best, largest_cost(pair_cost, lone_cost, order));
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(matching.threshold == best);
  CHECK(largest_cost(pair_cost, lone_cost, matching.partner) == best);
  CHECK(std::set<std::int32_t>(matching.partner.begin(), matching.partner.end()).size() == rows);
}

}  // namespace
}  // namespace troupe::balancer
