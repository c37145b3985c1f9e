// How a bench program reports: one JSON object per line, see README.md. And how it measures.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace troupe::bench {

/// One measurement. `extra`: size, bound, better, command, note; see README.md.
inline void report(const std::string& measure, double value, const std::string& unit,
                   nlohmann::json extra = nlohmann::json::object()) {
  extra["measure"] = measure;
  extra["value"] = value;
  extra["unit"] = unit;
  std::cout << extra.dump() << std::endl;
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Seconds that `work` takes: median of `repeats`, after one run that does not count.
inline double median_seconds(int repeats, const std::function<void()>& work) {
  work();
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return median(std::move(seconds));
}

}  // namespace troupe::bench
