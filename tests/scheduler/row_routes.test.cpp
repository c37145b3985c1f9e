#include "scheduler/iteration/row_routes.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <random>

#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using testing::draw;
using Rows = std::vector<int>;  // A row is a number that names it.

std::vector<RowRoute> routed(const std::vector<TokenCount>& rows, std::int32_t destinations) {
  auto routes = route_rows(rows, destinations);
  REQUIRE(routes.ok());
  return std::move(routes).value();
}

/// What each destination holds.
std::vector<Rows> forward(const std::vector<Rows>& sources, std::int32_t destinations) {
  std::vector<TokenCount> counts;
  for (const auto& rows : sources) counts.push_back(static_cast<TokenCount>(rows.size()));
  std::vector<Rows> out(static_cast<std::size_t>(destinations));
  for (const auto& route : routed(counts, destinations)) {
    auto& to = out[static_cast<std::size_t>(route.destination)];
    REQUIRE(static_cast<TokenCount>(to.size()) == route.destination_begin);
    const auto from = sources[static_cast<std::size_t>(route.source)].begin() + route.source_begin;
    to.insert(to.end(), from, from + route.rows);
  }
  return out;
}

/// What each source gets back when destinations hand back what they hold.
std::vector<Rows> backward(const std::vector<Rows>& held, const std::vector<TokenCount>& counts) {
  std::vector<Rows> out;
  for (const auto count : counts) out.emplace_back(static_cast<std::size_t>(count), -1);
  for (const auto& route : routed(counts, static_cast<std::int32_t>(held.size())))
    for (TokenCount i = 0; i < route.rows; ++i) {
      auto& place = out[static_cast<std::size_t>(route.source)]
                       [static_cast<std::size_t>(route.source_begin + i)];
      REQUIRE(place == -1);  // Put there, never added.
      place = held[static_cast<std::size_t>(route.destination)]
                  [static_cast<std::size_t>(route.destination_begin + i)];
    }
  return out;
}

TEST_CASE("fan-in concatenates, and gradients come back as own slices", "[scheduler]") {
  const std::vector<Rows> four{{1, 2}, {3}, {}, {4, 5, 6}};
  CHECK(forward(four, 2) == std::vector<Rows>{{1, 2, 3}, {4, 5, 6}});
  CHECK(forward(four, 1) == std::vector<Rows>{{1, 2, 3, 4, 5, 6}});
  CHECK(backward({{10, 20, 30}, {40, 50, 60}}, {2, 1, 0, 3}) ==
        std::vector<Rows>{{10, 20}, {30}, {}, {40, 50, 60}});
}

TEST_CASE("fan-out hands out slices, and the siblings' gradients are concatenated", "[scheduler]") {
  const std::vector<Rows> two{{1, 2, 3}, {4, 5}};
  CHECK(forward(two, 4) == std::vector<Rows>{{1, 2}, {3}, {4}, {5}});
  CHECK(backward({{10, 20}, {30}, {40}, {50}}, {3, 2}) ==
        std::vector<Rows>{{10, 20, 30}, {40, 50}});
}

TEST_CASE("as many replicas on both sides change nothing", "[scheduler]") {
  const std::vector<Rows> uneven{{1, 2, 3, 4}, {}, {5}};
  CHECK(forward(uneven, 3) == uneven);
}

TEST_CASE("six rows as 0, 3, 1, 2 go to two destinations as 3 and 3", "[scheduler]") {
  CHECK(routed({0, 3, 1, 2}, 2) ==
        std::vector<RowRoute>{{1, 0, 0, 0, 3}, {2, 1, 0, 0, 1}, {3, 1, 0, 1, 2}});
}

TEST_CASE("sizes that do not divide one another are cut evenly", "[scheduler]") {
  // Two replicas with 5 and 2 rows into three: 3, 2, 2.
  CHECK(forward({{1, 2, 3, 4, 5}, {6, 7}}, 3) == std::vector<Rows>{{1, 2, 3}, {4, 5}, {6, 7}});
}

TEST_CASE("counts that make no sense are refused", "[scheduler][errors]") {
  CHECK(route_rows({}, 2).error().where == "rows_per_source");
  CHECK(route_rows({1, -1}, 2).error().where == "rows_per_source[1]");
  CHECK(route_rows({1}, 0).error().where == "destinations");
}

TEST_CASE("rows keep their order, arrive once, and gradients find their way back",
          "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    std::vector<Rows> sources(static_cast<std::size_t>(draw(random, 1, 6)));
    std::vector<TokenCount> counts;
    int next = 0;
    for (auto& rows : sources) {
      rows.resize(static_cast<std::size_t>(draw(random, 0, 7)));
      std::iota(rows.begin(), rows.end(), next);
      next += static_cast<int>(rows.size());
      counts.push_back(static_cast<TokenCount>(rows.size()));
    }
    const auto destinations = draw(random, 1, 6);
    CAPTURE(seed, destinations);
    const auto held = forward(sources, destinations);
    int expected = 0;
    for (const auto& rows : held)
      for (const int row : rows) REQUIRE(row == expected++);
    REQUIRE(expected == next);
    REQUIRE(backward(held, counts) == sources);
    for (const auto& route : routed(counts, destinations)) REQUIRE(route.rows > 0);
  }
}

}  // namespace
}  // namespace troupe::scheduler
