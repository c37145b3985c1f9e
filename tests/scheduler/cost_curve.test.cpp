#include "scheduler/cost/cost_curve.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <random>

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

CostCurve fitted(std::vector<CurvePoint> points) {
  auto curve = CostCurve::fit(std::move(points));
  REQUIRE(curve.ok());
  return std::move(curve).value();
}

TEST_CASE("a curve recovers the quadratic its points lie on", "[scheduler]") {
  // 2e-6 x^2 + 3e-3 x + 0.5 at the sizes that Entrain profiles.
  std::vector<CurvePoint> points;
  for (const double x : {64.0, 256.0, 1024.0, 4096.0, 16384.0})
    points.push_back({x, 2e-6 * x * x + 3e-3 * x + 0.5});
  const auto curve = fitted(points);
  CHECK(curve.coefficients()[0] == Approx(2e-6));
  CHECK(curve.coefficients()[1] == Approx(3e-3));
  CHECK(curve.coefficients()[2] == Approx(0.5));
  CHECK(curve.at(2000) == Approx(8 + 6 + 0.5));
  CHECK(curve.variable_at(2000) == Approx(14));
  CHECK(curve.fit_error().worst < 1e-9);
  CHECK(curve.leave_one_out_error().worst < 1e-9);
}

TEST_CASE("no tokens cost nothing", "[scheduler]") {
  CHECK(fitted({{10, 5}, {20, 6}, {30, 7}}).at(0) == 0);
  CHECK(CostCurve{}.at(100) == 0);
}

TEST_CASE("one point gives a line, two give no curvature", "[scheduler]") {
  CHECK(fitted({{10, 5}}).at(30) == Approx(15));
  const auto line = fitted({{10, 5}, {20, 7}});
  CHECK(line.at(30) == Approx(9));
  CHECK(line.coefficients()[0] == 0);
}

TEST_CASE("where the fit is poor the measured points answer", "[scheduler]") {
  // Linear except for a plateau at 200 that no quadratic follows.
  const auto curve = fitted({{100, 1}, {200, 6}, {300, 3}, {400, 4}, {800, 8}});
  CHECK(curve.fit_error().worst > CostCurve::kFitTolerance);
  CHECK(curve.at(200) == 6);
  CHECK(curve.at(250) > 4);  // Between 6 and about 3.
}

TEST_CASE("a cost never falls below zero nor with more tokens beyond the points", "[scheduler]") {
  // Decreasing measurements would fit a negative slope; the coefficients are kept >= 0.
  const auto curve = fitted({{10, 9}, {20, 8}, {40, 7}});
  for (const double coefficient : curve.coefficients()) CHECK(coefficient >= 0);
  CHECK(curve.at(1000) >= curve.at(100));
}

TEST_CASE("points of equal tokens are averaged", "[scheduler]") {
  CHECK(fitted({{10, 4}, {10, 6}}).at(10) == Approx(5));
}

TEST_CASE("leaving one point out tells how far a prediction can be off", "[scheduler]") {
  // The point at 300 is half of its neighbours' line and so cannot be foreseen from them.
  const auto error =
      fitted({{100, 100}, {200, 200}, {300, 150}, {400, 400}, {500, 500}}).leave_one_out_error();
  CHECK(error.worst_at_tokens == 300);
  CHECK(error.worst > 0.5);
  CHECK(fitted({{1, 1}, {2, 2}, {3, 3}}).leave_one_out_error().worst == 0);
}

TEST_CASE("a curve that breaks tells nothing across the break", "[scheduler]") {
  // 10 per token up to 400 tokens, from 500 on 2 per token and 100.
  const std::vector<CurvePoint> points{{100, 1000}, {200, 2000},  {300, 3000},  {400, 4000},
                                       {500, 1100}, {1000, 2100}, {2000, 4100}, {4000, 8100}};
  const auto curve = CostCurve::fit(points, 400).value();
  CHECK(curve.at(350) == Approx(3500));
  CHECK(curve.at(450) == Approx(4500));
  CHECK(curve.at(500) == Approx(1100));
  CHECK(curve.at(8000) == Approx(16'100));
  CHECK(curve.variable_at(1000) == Approx(2000));
  CHECK(curve.fit_error().worst < 1e-9);
  CHECK(curve.leave_one_out_error().worst < 1e-9);
  CHECK(fitted(points).leave_one_out_error().worst > 0.5);
  // Nothing on one side: no break.
  CHECK(CostCurve::fit({{100, 1000}, {200, 2000}}, 50).value().at(150) == Approx(1500));
  CHECK(CostCurve::fit({{100, 1000}, {200, 2000}}, 200).value().at(300) == Approx(3000));
}

TEST_CASE("bad points are refused with the reason", "[scheduler][errors]") {
  CHECK(CostCurve::fit({}).error().code == Errc::invalid_argument);
  CHECK_THAT(CostCurve::fit({{0, 1}}).error().message, ContainsSubstring("expected > 0"));
  CHECK_THAT(CostCurve::fit({{5, -1}}).error().message, ContainsSubstring("-1"));
  CHECK_FALSE(CostCurve::fit({{5, std::nan("")}}).ok());
}

TEST_CASE("the fit is exact on noiseless random quadratics", "[scheduler][property]") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(0, 1);
    const double a = uniform(random) * 1e-5, b = uniform(random) * 1e-2, c = uniform(random);
    std::vector<CurvePoint> points;
    for (double x = 64; x <= 16384; x *= 2) points.push_back({x, a * x * x + b * x + c});
    const auto curve = fitted(points);
    CAPTURE(seed);
    for (double x = 50; x < 30000; x *= 1.7)
      REQUIRE(curve.at(x) == Approx(a * x * x + b * x + c).epsilon(1e-6));
  }
}

}  // namespace
}  // namespace troupe::scheduler
