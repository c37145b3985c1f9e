// The axes of a chart: which values it spans, where a value lies, and what is written beside it.
//
// Pure.

#pragma once

#include <limits>
#include <string>
#include <vector>

namespace troupe::observe {

/// The span of finite values; others are passed over.
struct ValueRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value);
  bool empty() const { return low > high; }
};

/// One axis. REQUIRES: low < high, and 0 < low where it is logarithmic.
struct ChartScale {
  double low = 0;
  double high = 1;
  bool logarithmic = false;

  /// Where a value lies: 0 at `low`, 1 at `high`. Not finite: the value is nowhere on the axis.
  double share(double value) const;

  /// Round values between `low` and `high`, ascending, about `count` of them.
  std::vector<double> ticks(int count) const;
};

/// An axis on which these values can be told apart, with a little room around them; from zero
/// where `from_zero` and none is below. REQUIRES: not empty.
ChartScale linear_scale(ValueRange values, bool from_zero);

/// The same by powers of ten. REQUIRES: not empty, all above zero.
ChartScale logarithmic_scale(ValueRange values);

/// A number beside an axis: as `figure`, but `20k` and `1.5M`.
std::string axis_number(double value);

}  // namespace troupe::observe
