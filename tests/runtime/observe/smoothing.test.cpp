#include "runtime/observe/smoothing.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <random>

namespace troupe::observe {
namespace {

TEST_CASE("a smoothed value is the mean of its neighbourhood", "[observe]") {
  // By hand: of 300 values a neighbourhood reaches 3 to either side, of the 11th on 1 (a tenth of
  // what lies before). A peak of 7 at index 100 is spread over seven values.
  std::vector<double> values(300, 0.0);
  values[100] = 7;
  values[11] = 9;
  const auto means = smoothed(values);
  CHECK(means[96] == 0);
  CHECK(means[97] == Catch::Approx(1));
  CHECK(means[103] == Catch::Approx(1));
  CHECK(means[104] == Catch::Approx(0).margin(1e-12));
  CHECK(means[11] == Catch::Approx(3));
  // The beginning is left as it is: nothing is flatter than it was.
  values[5] = 4;
  CHECK(smoothed(values)[5] == 4);
}

TEST_CASE("what is not finite is left out of a mean", "[observe]") {
  std::vector<double> values(300, 2.0);
  values[200] = NAN;
  values[201] = INFINITY;
  const auto means = smoothed(values);
  CHECK(means[200] == Catch::Approx(2));
  CHECK(means[198] == Catch::Approx(2));
  CHECK(std::isnan(smoothed(std::vector<double>(300, NAN))[150]));
  CHECK(smoothed({}).empty());
}

TEST_CASE("smoothing agrees with means taken one by one", "[observe][property]") {
  std::mt19937 random(GENERATE(range(0u, 8u)));
  std::vector<double> values(100 + random() % 2000);
  for (auto& value : values) value = random() % 50 == 0 ? NAN : static_cast<double>(random() % 100);
  const auto means = smoothed(values);
  REQUIRE(means.size() == values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto reach = std::min(i / 10, values.size() / 100);
    double sum = 0, finite = 0;
    for (auto k = i - reach; k <= std::min(i + reach, values.size() - 1); ++k)
      if (std::isfinite(values[k])) sum += values[k], ++finite;
    if (finite > 0) {
      REQUIRE(means[i] == Catch::Approx(sum / finite));
    } else {
      REQUIRE(std::isnan(means[i]));
    }
  }
}

}  // namespace
}  // namespace troupe::observe
