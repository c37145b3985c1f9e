#include "balancer/ranks/assign_shares.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "balancer/ranks/node_wise.hpp"

namespace troupe::balancer {
namespace {

using Places = std::vector<std::size_t>;

constexpr double kNever = std::numeric_limits<double>::infinity();

double sum_of(const std::vector<double>& costs, const Places& places) {
  double sum = 0;
  for (std::size_t s = 0; s < places.size(); ++s) sum += costs[s * places.size() + places[s]];
  return sum;
}

TEST_CASE("shares go where all of them together cost least", "[balancer]") {
  // Share 0 would be best off in place 0, but 1 can hardly be anywhere else.
  CHECK((assign_shares(std::vector<double>{1, 2, 0, 9}, 2) == Places{1, 0}));
  CHECK((assign_shares(std::vector<double>{1, 9, 0, 2}, 2) == Places{0, 1}));
  // 2 + 1 + 3; the cheapest of each share are all in place 1.
  CHECK((assign_shares(std::vector<double>{2, 1, 9, 9, 1, 9, 9, 0, 3}, 3) == Places{0, 1, 2}));
  CHECK(assign_shares({}, 0).empty());
}

TEST_CASE("no share goes where it may not", "[balancer]") {
  CHECK((assign_shares(std::vector<double>{0, 5, kNever, 0}, 2) == Places{0, 1}));
  CHECK((assign_shares(std::vector<double>{kNever, 5, 7, kNever}, 2) == Places{1, 0}));
  // Both want place 0 alone: all stay.
  CHECK((assign_shares(std::vector<double>{0, kNever, 0, kNever}, 2) == Places{0, 1}));
}

TEST_CASE("no other way to place shares costs less", "[balancer][property]") {
  std::mt19937_64 random(5);
  int forbidden = 0;
  for (int turn = 0; turn < 500; ++turn) {
    const std::size_t count = 1 + random() % 6;
    std::vector<double> costs;
    for (std::size_t i = 0; i < count * count; ++i)
      costs.push_back(random() % 5 == 0 ? kNever : static_cast<double>(random() % 20));
    // There is a way.
    for (std::size_t s = 0; s < count; ++s) costs[s * count + s] = 15;
    const Places places = assign_shares(costs, count);
    Places sorted = places;
    std::sort(sorted.begin(), sorted.end());
    Places other(count);
    std::iota(other.begin(), other.end(), std::size_t{0});
    REQUIRE(sorted == other);
    double least = kNever;
    do {
      least = std::min(least, sum_of(costs, other));
    } while (std::next_permutation(other.begin(), other.end()));
    REQUIRE(sum_of(costs, places) == least);
    REQUIRE(assign_shares(costs, count) == places);
    forbidden += std::ranges::count(costs, kNever) > 0 ? 1 : 0;
  }
  CHECK(forbidden > 200);
}

TEST_CASE("placed for their sum, batches send no more than placed for the largest",
          "[balancer][property]") {
  std::mt19937_64 random(6);
  int less = 0;
  for (int turn = 0; turn < 100; ++turn) {
    NodeWiseProblem problem;
    problem.ranks_per_node = 1 + static_cast<std::int32_t>(random() % 3);
    problem.rank_count = problem.ranks_per_node * (2 + static_cast<std::int32_t>(random() % 3));
    const auto ranks = static_cast<std::size_t>(problem.rank_count);
    std::vector<double> costs(ranks * ranks);
    for (std::int32_t origin = 0; origin < problem.rank_count; ++origin)
      for (std::int32_t batch = 0; batch < problem.rank_count; ++batch) {
        const double volume = static_cast<double>(random() % 100);
        problem.volumes.push_back({origin, batch, volume});
        for (std::int32_t rank = 0; rank < problem.rank_count; ++rank)
          if (rank / problem.ranks_per_node != origin / problem.ranks_per_node)
            costs[static_cast<std::size_t>(batch) * ranks + static_cast<std::size_t>(rank)] +=
                volume;
      }
    const double placed = sum_of(costs, assign_shares(costs, ranks));
    const double searched = assign_node_wise(problem).value().inter_node_total;
    REQUIRE(placed <= searched);
    less += placed < searched ? 1 : 0;
  }
  CHECK(less > 20);
}

}  // namespace
}  // namespace troupe::balancer
