// A noisy curve as a reader would draw it by hand.
//
// Pure.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace troupe::observe {

/// As many values or more are worth smoothing; fewer are looked at one by one.
inline constexpr std::size_t kSmoothedFrom = 50;

/// The mean of each value's neighbourhood, as many values as given. A neighbourhood reaches a
/// hundredth of all values to either side, and a tenth of what lies before where that is less: the
/// fall at the beginning of a loss stays where it is. Values that are not finite are left out;
/// where none is finite, so is the mean. Cost: linear.
std::vector<double> smoothed(std::span<const double> values);

}  // namespace troupe::observe
