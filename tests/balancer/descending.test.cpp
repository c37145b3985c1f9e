#include "balancer/loads/descending.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <random>

namespace troupe::balancer {
namespace {

TEST_CASE("places by descending key are a stable sort's", "[balancer][property]") {
  // Of few they are sorted by comparing, of many by their bits.
  const std::size_t count = GENERATE(0, 1, 7, 1024, 1025, 20'000);
  const double largest = GENERATE(1e-300, 3.0, 1e12);
  std::mt19937_64 random(count);
  std::uniform_real_distribution<double> key(0, largest);
  std::vector<double> keys;
  for (std::size_t i = 0; i < count; ++i) {
    // Every fourth is nothing, some as -0.0, and every fourth as another one.
    const double copied = i > 0 ? keys[random() % i] : 0;
    keys.push_back(i % 4 == 0 ? (i % 8 == 0 ? 0.0 : -0.0) : i % 4 == 1 ? copied : key(random));
  }
  std::vector<std::int32_t> expected(count);
  std::iota(expected.begin(), expected.end(), 0);
  const auto at = [&](std::int32_t place) { return keys[static_cast<std::size_t>(place)]; };
  std::ranges::stable_sort(expected, [&](auto a, auto b) { return at(a) > at(b); });
  CHECK(by_descending(count, [&](std::size_t place) { return keys[place]; }) == expected);
}

}  // namespace
}  // namespace troupe::balancer
