// What the planning benchmarks share: processor time of a function, and one JSON line per measure.

#pragma once

#include <algorithm>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace troupe::bench {

/// Median processor time of `repeats` runs in milliseconds, after one that warms up. Time given to
/// other programs does not count, though they still take caches away.
template <class Function>
double cpu_ms(Function function, int repeats = 7) {
  std::vector<double> times;
  for (int i = 0; i <= repeats; ++i) {
    const auto begin = std::clock();
    function();
    if (i > 0) times.push_back(1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  const auto middle = times.begin() + repeats / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

/// {"measure", "value", "unit", "bound", "better", "size"}; a value should not exceed its bound.
inline void print(const std::string& measure, double value, const char* unit,
                  std::optional<double> bound, const std::string& size) {
  nlohmann::ordered_json line{{"measure", measure}, {"value", value}, {"unit", unit}};
  line["bound"] = bound ? nlohmann::ordered_json(*bound) : nlohmann::ordered_json();
  line["better"] = "lower";
  line["size"] = size;
  std::cout << line.dump() << std::endl;
}

}  // namespace troupe::bench
