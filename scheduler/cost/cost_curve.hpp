// One measured quantity (milliseconds or bytes) as a function of tokens: a quadratic fit that also
// keeps its points, and answers from the points where the fit is poor.
//
// Entrain (dissertation 4.4.1) fits a x^2 + b x + c; DFLOP (3.2) interpolates measured points. Real
// kernels follow the quadratic in the large and leave it where a tile or a cache boundary lies, so
// a curve uses both. Pure and thread-safe.

#pragma once

#include <array>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::scheduler {

/// One observation.
struct CurvePoint {
  double tokens = 0;  ///< > 0.
  double value = 0;   ///< >= 0.

  friend bool operator==(const CurvePoint&, const CurvePoint&) = default;
};

/// How good a curve is, as relative errors |predicted - measured| / measured over its points.
struct FitError {
  double mean = 0;
  double worst = 0;
  double worst_at_tokens = 0;
};

class CostCurve {
 public:
  /// Relative error of the quadratic at a point above which the neighbourhood of that point is
  /// interpolated instead.
  static constexpr double kFitTolerance = 0.05;

  static constexpr double kUnbroken = std::numeric_limits<double>::infinity();

  /// A curve that is 0 everywhere.
  CostCurve() = default;

  /// Fits by least squares of relative errors, so that a short sequence weighs as much as a long
  /// one; coefficients are kept >= 0 (a cost does not fall when tokens are added), choosing the
  /// best fit among those. One point gives a line through the origin, two points a x^2-free fit.
  /// Points of equal tokens are averaged; order does not matter. Cost: O(points log points).
  ///
  /// Points of more tokens than `breaks_behind` are of another way of computing: what is on one
  /// side of the break tells nothing of the other, and between the last point below and the first
  /// one above that of below goes on.
  ///
  /// Errors:
  /// - invalid_argument: no point, tokens <= 0, or a value that is negative or not finite.
  static Result<CostCurve> fit(std::vector<CurvePoint> points, double breaks_behind = kUnbroken);

  /// Value at `tokens` >= 0; 0 at 0 tokens (a stage with nothing to do does nothing). Between two
  /// points of which one is poorly fitted: linear interpolation. Outside of the measured range: the
  /// fit, scaled to agree with the outermost point where that one is poorly fitted.
  double at(double tokens) const;

  /// What the tokens add: `at` less what a launch costs however few tokens it has.
  double variable_at(double tokens) const;

  /// Below a break, where there is one.
  const std::array<double, 3>& coefficients() const { return coefficients_; }
  const std::vector<CurvePoint>& points() const { return points_; }

  /// Error of the bare quadratic on its own points.
  FitError fit_error() const;
  /// Error on points left out: each inner point is predicted by a curve made from the others, and
  /// so tells what a prediction between measured points is worth. Zero below four points.
  FitError leave_one_out_error() const;

 private:
  explicit CostCurve(std::vector<CurvePoint> points);

  /// The curve above the break, if `tokens` are.
  const CostCurve* above_break(double tokens) const;
  double quadratic_at(double tokens) const;
  bool is_poor(std::size_t point) const;

  std::array<double, 3> coefficients_{};    // a, b, c of a x^2 + b x + c.
  std::vector<CurvePoint> points_;          // Ascending tokens, distinct.
  std::shared_ptr<const CostCurve> above_;  // Behind the break; null: there is none.
};

}  // namespace troupe::scheduler
