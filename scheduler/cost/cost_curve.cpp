#include "scheduler/cost/cost_curve.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

namespace troupe::scheduler {

namespace {

using Coefficients = std::array<double, 3>;

double evaluate(const Coefficients& k, double x) { return (k[0] * x + k[1]) * x + k[2]; }

// Solves the 3x3 (or smaller) normal equations restricted to the chosen powers by Gaussian
// elimination with pivoting. Tokens are scaled to [0, 1] by the caller, which keeps it well
// conditioned. Empty when singular.
std::optional<Coefficients> least_squares(std::span<const CurvePoint> points, unsigned mask) {
  double matrix[3][4] = {};
  for (const auto& point : points) {
    const double weight = point.value > 0 ? 1 / (point.value * point.value) : 1;
    const double basis[3] = {point.tokens * point.tokens, point.tokens, 1};
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) matrix[i][j] += weight * basis[i] * basis[j];
      matrix[i][3] += weight * basis[i] * point.value;
    }
  }
  // A power that is not used becomes the equation "coefficient = 0".
  for (int i = 0; i < 3; ++i) {
    if (mask & (1u << i)) continue;
    for (int j = 0; j < 3; ++j) matrix[i][j] = matrix[j][i] = 0;
    matrix[i][i] = 1;
    matrix[i][3] = 0;
  }
  for (int column = 0; column < 3; ++column) {
    int pivot = column;
    for (int row = column + 1; row < 3; ++row)
      if (std::abs(matrix[row][column]) > std::abs(matrix[pivot][column])) pivot = row;
    if (std::abs(matrix[pivot][column]) < 1e-300) return std::nullopt;
    std::swap(matrix[pivot], matrix[column]);
    for (int row = 0; row < 3; ++row) {
      if (row == column) continue;
      const double factor = matrix[row][column] / matrix[column][column];
      for (int k = column; k < 4; ++k) matrix[row][k] -= factor * matrix[column][k];
    }
  }
  Coefficients solution;
  for (int i = 0; i < 3; ++i) solution[static_cast<std::size_t>(i)] = matrix[i][3] / matrix[i][i];
  return solution;
}

double squared_relative_error(std::span<const CurvePoint> points, const Coefficients& k) {
  double sum = 0;
  for (const auto& point : points) {
    const double scale = point.value > 0 ? point.value : 1;
    const double error = (evaluate(k, point.tokens) - point.value) / scale;
    sum += error * error;
  }
  return sum;
}

// Non-negative least squares in three unknowns: the optimum is the unconstrained one of some
// subset of the powers, so trying all seven subsets is exact.
Coefficients non_negative_fit(std::vector<CurvePoint> points) {
  const double scale = points.back().tokens;
  for (auto& point : points) point.tokens /= scale;
  Coefficients best{};
  double best_error = squared_relative_error(points, best);
  for (unsigned mask = 1; mask < 8; ++mask) {
    if (static_cast<std::size_t>(__builtin_popcount(mask)) > points.size()) continue;
    if (points.size() == 1 && mask != 2) continue;        // A line through the origin.
    if (points.size() == 2 && (mask & 1) != 0) continue;  // Two points show no curvature.
    const auto solution = least_squares(points, mask);
    if (!solution) continue;
    if (*std::min_element(solution->begin(), solution->end()) < 0) continue;
    const double error = squared_relative_error(points, *solution);
    if (error < best_error) best = *solution, best_error = error;
  }
  return {best[0] / (scale * scale), best[1] / scale, best[2]};
}

Status check(std::span<const CurvePoint> points) {
  if (points.empty()) return Error{Errc::invalid_argument, "a cost curve needs a point", {}, {}};
  for (const auto& point : points) {
    if (!(point.tokens > 0) || !std::isfinite(point.tokens))
      return Error{Errc::invalid_argument,
                   "a cost point has " + std::to_string(point.tokens) + " tokens, expected > 0",
                   {},
                   {}};
    if (!(point.value >= 0) || !std::isfinite(point.value))
      return Error{Errc::invalid_argument,
                   "the cost measured at " + std::to_string(point.tokens) + " tokens is " +
                       std::to_string(point.value) + ", expected a finite number >= 0",
                   {},
                   "measure again, or drop the point"};
  }
  return Done{};
}

// Sorts and averages points of equal tokens.
std::vector<CurvePoint> merged(std::vector<CurvePoint> points) {
  std::sort(points.begin(), points.end(), [](const CurvePoint& a, const CurvePoint& b) {
    return a.tokens != b.tokens ? a.tokens < b.tokens : a.value < b.value;
  });
  std::vector<CurvePoint> distinct;
  for (std::size_t begin = 0; begin < points.size();) {
    std::size_t end = begin;
    double sum = 0;
    while (end < points.size() && points[end].tokens == points[begin].tokens)
      sum += points[end++].value;
    distinct.push_back({points[begin].tokens, sum / static_cast<double>(end - begin)});
    begin = end;
  }
  return distinct;
}

void record(FitError& error, double predicted, const CurvePoint& point, std::size_t& count) {
  const double scale = point.value > 0 ? point.value : 1;
  const double relative = std::abs(predicted - point.value) / scale;
  error.mean += relative;
  ++count;
  if (relative > error.worst) error.worst = relative, error.worst_at_tokens = point.tokens;
}

}  // namespace

CostCurve::CostCurve(std::vector<CurvePoint> points)
    : coefficients_(non_negative_fit(points)), points_(std::move(points)) {}

Result<CostCurve> CostCurve::fit(std::vector<CurvePoint> points, double breaks_behind) {
  if (auto status = check(points); !status.ok()) return status.error();
  points = merged(std::move(points));
  const auto first = std::find_if(points.begin(), points.end(), [&](const CurvePoint& point) {
    return point.tokens > breaks_behind;
  });
  if (first == points.begin() || first == points.end()) return CostCurve(std::move(points));
  CostCurve curve(std::vector<CurvePoint>(points.begin(), first));
  curve.above_ =
      std::make_shared<const CostCurve>(CostCurve(std::vector<CurvePoint>(first, points.end())));
  return curve;
}

const CostCurve* CostCurve::above_break(double tokens) const {
  return above_ && tokens >= above_->points_.front().tokens ? above_.get() : nullptr;
}

double CostCurve::quadratic_at(double tokens) const { return evaluate(coefficients_, tokens); }

bool CostCurve::is_poor(std::size_t point) const {
  const auto& [tokens, value] = points_[point];
  return std::abs(quadratic_at(tokens) - value) > kFitTolerance * value;
}

double CostCurve::at(double tokens) const {
  if (!(tokens > 0)) return 0;
  if (const auto* above = above_break(tokens)) return above->at(tokens);
  if (points_.empty()) return quadratic_at(tokens);
  const auto scaled_by = [&](std::size_t point) {
    const double fitted = quadratic_at(points_[point].tokens);
    if (!is_poor(point) || fitted <= 0) return quadratic_at(tokens);
    return quadratic_at(tokens) * points_[point].value / fitted;
  };
  const auto above =
      std::lower_bound(points_.begin(), points_.end(), tokens,
                       [](const CurvePoint& point, double x) { return point.tokens < x; });
  if (above == points_.end()) return scaled_by(points_.size() - 1);
  const auto right = static_cast<std::size_t>(above - points_.begin());
  if (above->tokens == tokens) return is_poor(right) ? above->value : quadratic_at(tokens);
  if (right == 0) return scaled_by(0);
  const std::size_t left = right - 1;
  if (!is_poor(left) && !is_poor(right)) return quadratic_at(tokens);
  // A well-fitted end keeps the fit's value, so that the curve has no jump there.
  const auto end_value = [&](std::size_t point) {
    return is_poor(point) ? points_[point].value : quadratic_at(points_[point].tokens);
  };
  const double share =
      (tokens - points_[left].tokens) / (points_[right].tokens - points_[left].tokens);
  return end_value(left) + share * (end_value(right) - end_value(left));
}

double CostCurve::variable_at(double tokens) const {
  if (const auto* above = above_break(tokens)) return above->variable_at(tokens);
  return tokens > 0 ? std::max(0.0, at(tokens) - coefficients_[2]) : 0;
}

FitError CostCurve::fit_error() const {
  FitError error;
  std::size_t count = 0;
  for (const CostCurve* piece = this; piece != nullptr; piece = piece->above_.get())
    for (const auto& point : piece->points_)
      record(error, piece->quadratic_at(point.tokens), point, count);
  if (count > 0) error.mean /= static_cast<double>(count);
  return error;
}

FitError CostCurve::leave_one_out_error() const {
  FitError error;
  std::size_t count = 0;
  for (const CostCurve* piece = this; piece != nullptr; piece = piece->above_.get()) {
    if (piece->points_.size() < 4) continue;
    for (std::size_t left_out = 1; left_out + 1 < piece->points_.size(); ++left_out) {
      auto others = piece->points_;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(left_out));
      const auto& point = piece->points_[left_out];
      record(error, CostCurve(std::move(others)).at(point.tokens), point, count);
    }
  }
  if (count > 0) error.mean /= static_cast<double>(count);
  return error;
}

}  // namespace troupe::scheduler
