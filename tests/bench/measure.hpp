// What the planning benchmarks share: processor time of a function, and one JSON line per measure.

#pragma once

#include <algorithm>
#include <cmath>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace troupe::bench {

/// Least processor time of `repeats` runs in milliseconds: what one undisturbed core needs. Other
/// programs on the machine still take caches away, so the median says more about them.
template <class Function>
double cpu_ms(Function function, int repeats = 7) {
  double least = HUGE_VAL;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::clock();
    function();
    least = std::min(least, 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return least;
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
