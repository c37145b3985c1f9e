#include "runtime/observe/smoothing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::observe {

std::vector<double> smoothed(std::span<const double> values) {
  const auto count = values.size();
  std::vector<double> means(count, std::numeric_limits<double>::quiet_NaN());
  double sum = 0;
  std::size_t begin = 0, end = 0, finite = 0;  // Of the neighbourhood, which only moves on.
  for (std::size_t i = 0; i < count; ++i) {
    const auto reach = std::min(i / 10, count / 100);
    for (; end < std::min(i + reach + 1, count); ++end)
      if (std::isfinite(values[end])) sum += values[end], ++finite;
    for (; begin < i - reach; ++begin)
      if (std::isfinite(values[begin])) sum -= values[begin], --finite;
    if (finite > 0) means[i] = sum / static_cast<double>(finite);
  }
  return means;
}

}  // namespace troupe::observe
