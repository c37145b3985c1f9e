#include "balancer/ranks/place_shares.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "balancer/ranks/assign_shares.hpp"

namespace troupe::balancer {
namespace {

using Places = std::vector<std::size_t>;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::int64_t kCosts = 100'000;

Places as_they_are(std::size_t count) {
  Places places(count);
  std::iota(places.begin(), places.end(), std::size_t{0});
  return places;
}

bool is_permutation(Places places) {
  std::ranges::sort(places);
  return places == as_they_are(places.size());
}

double sum_of(const SharePlacement& problem, const Places& places) {
  double sum = 0;
  for (std::size_t s = 0; s < places.size(); ++s) sum += problem.cost(s, places[s]);
  return sum;
}

/// Shares of units that nodes want: each unit costs what it weighs on another node.
struct Wanted {
  std::vector<Places> nodes;
  Places node_of;                            ///< Per place.
  std::vector<std::vector<double>> weights;  ///< Per share and node.
  std::vector<double> sums;                  ///< Of these.

  /// Of so many shares that weigh nothing yet, on nodes of so many places.
  Wanted(std::size_t count, const std::function<std::size_t()>& size) {
    while (node_of.size() < count) {
      auto& node = nodes.emplace_back();
      for (std::size_t left = std::min(size(), count - node_of.size()); left > 0; --left) {
        node.push_back(node_of.size());
        node_of.push_back(nodes.size() - 1);
      }
    }
    weights.assign(count, std::vector<double>(nodes.size()));
    sums.assign(count, 0);
  }

  void add(std::size_t share, std::size_t node, double weight) {
    weights[share][node] += weight;
    sums[share] += weight;
  }

  /// Keeps this, by reference.
  SharePlacement problem() const {
    SharePlacement made;
    made.count = node_of.size();
    made.cost = [this](std::size_t share, std::size_t place) {
      return sums[share] - weights[share][node_of[place]];
    };
    made.nodes = nodes;
    for (const auto& own : weights) {
      auto& wanted = made.wanted.emplace_back();
      for (std::size_t node = 0; node < own.size(); ++node)
        if (own[node] > 0) wanted.push_back(node);
      std::ranges::stable_sort(wanted, std::greater<>(),
                               [&](std::size_t node) { return own[node]; });
    }
    return made;
  }
};

Wanted random_units(std::mt19937_64& random, std::size_t count, std::size_t widest) {
  Wanted made(count, [&] { return 1 + random() % widest; });
  for (std::size_t s = 0; s < count; ++s)
    for (std::size_t left = 1 + random() % 8; left > 0; --left) {
      const std::size_t node = random() % made.nodes.size();
      made.add(s, node, static_cast<double>(1 + random() % 9));
    }
  return made;
}

TEST_CASE("few shares are placed exactly", "[balancer][property]") {
  std::mt19937_64 random(8);
  int moved = 0;
  for (int turn = 0; turn < 300; ++turn) {
    const std::size_t count = 1 + random() % 6;
    std::vector<double> costs;
    for (std::size_t i = 0; i < count * count; ++i)
      costs.push_back(random() % 5 == 0 ? kNever : static_cast<double>(random() % 20));
    for (std::size_t s = 0; s < count; ++s)  // Where it is it may stay.
      costs[s * count + s] = static_cast<double>(random() % 20);
    SharePlacement problem;
    problem.count = count;
    problem.cost = [&](std::size_t share, std::size_t place) {
      return costs[share * count + place];
    };
    const Places places = place_shares(problem, kCosts);
    REQUIRE(is_permutation(places));
    double least = kNever;
    Places other = as_they_are(count);
    do {
      least = std::min(least, sum_of(problem, other));
    } while (std::next_permutation(other.begin(), other.end()));
    REQUIRE(sum_of(problem, places) == least);
    moved += places != as_they_are(count) ? 1 : 0;
  }
  CHECK(moved > 100);
}

TEST_CASE("as many as are placed at once cost as little as they can", "[balancer]") {
  std::mt19937_64 random(9);
  const Wanted units = random_units(random, kPlacedAtOnce, 5);
  const auto problem = units.problem();
  std::vector<double> costs;
  for (std::size_t s = 0; s < problem.count; ++s)
    for (std::size_t p = 0; p < problem.count; ++p) costs.push_back(problem.cost(s, p));
  const auto places = place_shares(problem, 0);  // No search, so nothing bounds it.
  CHECK(sum_of(problem, places) == sum_of(problem, assign_shares(costs, problem.count)));
  CHECK(sum_of(problem, places) < sum_of(problem, as_they_are(problem.count)));
}

TEST_CASE("of many shares two that want each other's place take it", "[balancer]") {
  // One place to a node, and each share is where it wants to be but for 3 and 90.
  Wanted units(100, [] { return std::size_t{1}; });
  for (std::size_t s = 0; s < 100; ++s) units.add(s, s == 3 ? 90u : s == 90 ? 3u : s, 5);
  Places swapped = as_they_are(100);
  std::swap(swapped[3], swapped[90]);
  CHECK(place_shares(units.problem(), kCosts) == swapped);
}

TEST_CASE("a ring of many shares goes on by one", "[balancer]") {
  Wanted units(70, [] { return std::size_t{1}; });
  for (std::size_t s = 0; s < 70; ++s) units.add(s, (s + 1) % 70, 1);
  const auto problem = units.problem();
  CHECK(sum_of(problem, place_shares(problem, kCosts)) == 0);
}

TEST_CASE("shares do not move for nothing", "[balancer]") {
  for (const std::size_t count : {kPlacedAtOnce, kPlacedAtOnce + 1}) {
    Wanted units(count, [] { return std::size_t{2}; });
    for (std::size_t s = 0; s < count; ++s)  // Every node wants as much of each.
      for (std::size_t node = 0; node < units.nodes.size(); ++node) units.add(s, node, 1);
    CHECK(place_shares(units.problem(), kCosts) == as_they_are(count));
  }
}

TEST_CASE("many shares on nodes of unlike sizes cost little more than they must",
          "[balancer][property]") {
  std::mt19937_64 random(10);
  for (const std::size_t widest : {1u, 4u, 16u, 64u})
    for (const std::size_t count : {65u, 100u, 160u, 256u}) {
      const Wanted units = random_units(random, count, widest);
      const auto problem = units.problem();
      std::vector<double> costs;
      for (std::size_t s = 0; s < count; ++s)
        for (std::size_t p = 0; p < count; ++p) costs.push_back(problem.cost(s, p));
      const Places places = place_shares(problem, kCosts);
      CAPTURE(widest, count);
      REQUIRE(is_permutation(places));
      const double sum = sum_of(problem, places);
      CHECK(sum < sum_of(problem, as_they_are(count)));
      CHECK(sum <= 1.04 * sum_of(problem, assign_shares(costs, count)));
      // Whoever places them comes to the same.
      const Wanted same = units;
      CHECK(place_shares(same.problem(), kCosts) == places);
    }
}

TEST_CASE("no more costs are asked for than may be, and no share is then worse off",
          "[balancer][property]") {
  std::mt19937_64 random(11);
  for (const std::int64_t costs_max : {0, 1, 2'000, 10'000}) {
    const Wanted units = random_units(random, 150, 3);
    auto problem = units.problem();
    std::int64_t asked = 0;
    problem.cost = [&, cost = problem.cost](std::size_t share, std::size_t place) {
      ++asked;
      return cost(share, place);
    };
    const Places places = place_shares(problem, costs_max);
    CHECK(asked <= 150 + costs_max + 256);
    REQUIRE(is_permutation(places));
    if (costs_max == 0) CHECK(places == as_they_are(150));
    if (costs_max > 1) CHECK(sum_of(problem, places) < sum_of(problem, as_they_are(150)));
  }
}

TEST_CASE("none of many shares goes where it may not", "[balancer][property]") {
  std::mt19937_64 random(12);
  for (int turn = 0; turn < 20; ++turn) {
    const std::size_t count = 65 + random() % 60;
    const Wanted units = random_units(random, count, 4);
    std::vector<bool> never(count * count);
    for (std::size_t i = 0; i < never.size(); ++i)
      never[i] = i / count != i % count && random() % 3 == 0;
    auto problem = units.problem();
    problem.cost = [&, cost = problem.cost](std::size_t share, std::size_t place) {
      return never[share * count + place] ? kNever : cost(share, place);
    };
    const Places places = place_shares(problem, kCosts);
    REQUIRE(is_permutation(places));
    REQUIRE(sum_of(problem, places) < sum_of(problem, as_they_are(count)));
  }
}

}  // namespace
}  // namespace troupe::balancer
