// How much longer layers take on a device than is computed for it, by size: what corrects computed
// profiles (roofline.hpp) at sizes and degrees that nobody measured.
//
// DFLOP (3.2.1) measures because formulas miss what kernels attain, and keeps attention apart from
// the rest, which scales otherwise. So do these ratios, and each pass has its own. Pure; immutable
// after construction, hence thread-safe.

#pragma once

#include <array>
#include <vector>

#include "scheduler/cost/profile.hpp"

namespace troupe::scheduler {

/// Measured over computed: what lies beyond is cut to it. No layer is so far from its device's peak
/// numbers; a measurement of something else may be.
inline constexpr double kRatioMin = 1.0 / 16, kRatioMax = 16;

/// One time of a layer at one size.
struct TimePair {
  double rows = 0;  ///< On one device; > 0.
  double measured_ms = 0;
  double computed_ms = 0;
};

/// Ratio of one time over rows.
class TimeRatio {
 public:
  /// Nothing was measured.
  TimeRatio() = default;

  /// `launch_ms`: what of each computed time is the launching of kernels. Pairs in any order.
  TimeRatio(const std::vector<TimePair>& pairs, double launch_ms);

  bool is_known() const { return takes_nothing_ || !points_.empty(); }

  /// The computed time by the ratio at these rows (> 0): between two measured sizes interpolated,
  /// logarithm over logarithm, outside of them that of the outermost one. Never below what
  /// launching is seen to cost: the fastest measured time less what is computed for its work. 0
  /// where the device took no time at any size, as for the input gradient of a first layer.
  /// REQUIRES: `is_known`.
  double corrected_ms(double computed_ms, double rows) const;

 private:
  struct Point {
    double log_rows, log_ratio;
  };

  double ratio_at(double rows) const;

  std::vector<Point> points_;  // Ascending rows.
  double launch_ms_ = 0;
  bool takes_nothing_ = false;
};

/// A size of a kind of layer on one device.
struct ComparedPoint {
  ProfilePoint measured, computed;
};

/// Ratios of all times of one kind.
class KindRatios {
 public:
  /// Sizes of at least one token. `launch_ms`: of a pass of the linear part, as computed; attention
  /// is computed without any.
  KindRatios(const std::vector<ComparedPoint>& points, double launch_ms);

  /// Corrects the times of a point that was computed for `rows` rows on each of its devices; bytes
  /// follow from shapes and stay. So do `collective_ms` of the linear part's forward and of its
  /// input gradient, which pass between devices: one device cannot show them. Times of which
  /// nothing was measured keep every bit.
  void correct(double rows, double collective_ms, ProfilePoint& point) const;

 private:
  std::array<TimeRatio, 3> linear_, attention_;  // As `kTimes`.
};

}  // namespace troupe::scheduler
