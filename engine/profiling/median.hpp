// The middle of measured times.

#pragma once

#include <algorithm>
#include <vector>

namespace troupe::engine {

/// The median; of an even number the upper one of the two. REQUIRES: not empty. O(values).
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace troupe::engine
