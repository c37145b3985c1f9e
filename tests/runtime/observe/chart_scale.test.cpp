#include "runtime/observe/chart_scale.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <random>

namespace troupe::observe {
namespace {

TEST_CASE("a linear axis has room around its values, and begins at zero where asked", "[observe]") {
  const auto from_zero = linear_scale({2, 10}, true);
  CHECK(from_zero.low == 0);
  CHECK(from_zero.high == 10.5);
  CHECK(from_zero.share(0) == 0);
  CHECK(from_zero.share(10.5) == 1);
  const auto tight = linear_scale({2, 10}, false);
  CHECK(tight.low == Catch::Approx(1.6));
  CHECK(linear_scale({-3, 5}, true).low < -3);
  // A level line runs in the middle, zero on the ground.
  CHECK(linear_scale({4, 4}, false).share(4) == 0.5);
  CHECK(linear_scale({0, 0}, true).share(0) == 0);
}

TEST_CASE("equal ratios are equal distances on a logarithmic axis", "[observe]") {
  const ChartScale scale{1, 100, true};
  CHECK(scale.share(1) == 0);
  CHECK(scale.share(10) == Catch::Approx(0.5));
  CHECK(scale.share(100) == Catch::Approx(1));
  CHECK_FALSE(std::isfinite(scale.share(0)));
  CHECK_FALSE(std::isfinite(scale.share(-1)));
  CHECK_FALSE(std::isfinite(scale.share(NAN)));
  CHECK(scale.ticks(5) == std::vector<double>{1, 2, 5, 10, 20, 50, 100});
  CHECK(ChartScale{1e-9, 1e3, true}.ticks(5).size() <= 8);
  // Less than a decade: round values, as on a linear axis.
  CHECK(ChartScale{1.1, 1.9, true}.ticks(4).size() >= 3);
}

TEST_CASE("ticks are few, ascending and on the axis", "[observe][property]") {
  std::mt19937 random(GENERATE(range(0u, 40u)));
  const auto number = [&] { return std::pow(10, static_cast<double>(random() % 1200) / 100 - 6); };
  const double low = number(), high = low + number();
  for (const auto& scale : {linear_scale({low, high}, false), linear_scale({low, high}, true),
                            logarithmic_scale({low, high})}) {
    const auto ticks = scale.ticks(5);
    CAPTURE(scale.low, scale.high, scale.logarithmic);
    REQUIRE(ticks.size() >= 2);
    REQUIRE(ticks.size() <= 13);
    for (std::size_t i = 0; i < ticks.size(); ++i) {
      REQUIRE(scale.share(ticks[i]) >= -1e-9);
      REQUIRE(scale.share(ticks[i]) <= 1 + 1e-9);
      REQUIRE((i == 0 || ticks[i] > ticks[i - 1]));
    }
  }
}

TEST_CASE("numbers beside an axis are short", "[observe]") {
  CHECK(axis_number(0) == "0");
  CHECK(axis_number(0.05) == "0.05");
  CHECK(axis_number(5000) == "5000");
  CHECK(axis_number(20'000) == "20k");
  CHECK(axis_number(250'000) == "250k");
  CHECK(axis_number(1'500'000) == "1.5M");
  CHECK(axis_number(-3e9) == "-3G");
}

}  // namespace
}  // namespace troupe::observe
