#include "scheduler/cost/measured_ratios.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

namespace troupe::scheduler {

namespace {

constexpr std::array<double PartCost::*, 3> kTimes{&PartCost::forward_ms, &PartCost::input_grad_ms,
                                                   &PartCost::weight_grad_ms};

std::array<TimeRatio, 3> ratios_of(const std::vector<ComparedPoint>& points,
                                   PartCost ProfilePoint::*part, double launch_ms) {
  std::array<TimeRatio, 3> ratios;
  for (std::size_t t = 0; t < kTimes.size(); ++t) {
    std::vector<TimePair> pairs;
    for (const auto& point : points)
      pairs.push_back({static_cast<double>(point.measured.tokens), point.measured.*part.*kTimes[t],
                       point.computed.*part.*kTimes[t]});
    ratios[t] = TimeRatio(pairs, launch_ms);
  }
  return ratios;
}

}  // namespace

TimeRatio::TimeRatio(const std::vector<TimePair>& pairs, double launch_ms) {
  const TimePair* fastest = nullptr;
  bool is_computed = false;
  for (const auto& pair : pairs) {
    if (!(pair.computed_ms > 0)) continue;
    is_computed = true;
    // What is measured as nothing at some sizes is below what can be told there.
    if (!(pair.measured_ms > 0)) continue;
    const double ratio = std::clamp(pair.measured_ms / pair.computed_ms, kRatioMin, kRatioMax);
    points_.push_back({std::log(pair.rows), std::log(ratio)});
    if (fastest == nullptr || pair.measured_ms < fastest->measured_ms) fastest = &pair;
  }
  takes_nothing_ = is_computed && points_.empty();
  if (fastest == nullptr) return;
  std::sort(points_.begin(), points_.end(),
            [](const Point& a, const Point& b) { return a.log_rows < b.log_rows; });
  const double work_ms = fastest->computed_ms - launch_ms;
  launch_ms_ = std::clamp(fastest->measured_ms - work_ms, std::min(launch_ms, fastest->measured_ms),
                          fastest->measured_ms);
}

double TimeRatio::ratio_at(double rows) const {
  const double log_rows = std::log(rows);
  const auto right =
      std::lower_bound(points_.begin(), points_.end(), log_rows,
                       [](const Point& point, double x) { return point.log_rows < x; });
  if (right == points_.begin()) return std::exp(right->log_ratio);
  const auto left = std::prev(right);
  if (right == points_.end()) return std::exp(left->log_ratio);
  const double share = (log_rows - left->log_rows) / (right->log_rows - left->log_rows);
  return std::exp(left->log_ratio + share * (right->log_ratio - left->log_ratio));
}

double TimeRatio::corrected_ms(double computed_ms, double rows) const {
  if (takes_nothing_ || !(computed_ms > 0)) return 0;
  return std::max(launch_ms_, computed_ms * ratio_at(rows));
}

KindRatios::KindRatios(const std::vector<ComparedPoint>& points, double launch_ms)
    : linear_(ratios_of(points, &ProfilePoint::linear, launch_ms)),
      attention_(ratios_of(points, &ProfilePoint::attention, 0)) {}

void KindRatios::correct(double rows, double collective_ms, ProfilePoint& point) const {
  for (std::size_t t = 0; t < kTimes.size(); ++t) {
    double& linear = point.linear.*kTimes[t];
    const double between = kTimes[t] == &PartCost::weight_grad_ms ? 0 : collective_ms;
    if (linear_[t].is_known()) linear = between + linear_[t].corrected_ms(linear - between, rows);
    double& attention = point.attention.*kTimes[t];
    if (attention_[t].is_known()) attention = attention_[t].corrected_ms(attention, rows);
  }
}

}  // namespace troupe::scheduler
