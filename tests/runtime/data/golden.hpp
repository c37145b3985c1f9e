// The golden files beside the tests (made by tests/reference/data/make_golden.py) and real data.
//
// Tests run from the repository root.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace troupe::data {

inline std::string golden_path(const std::string& name) {
  return "tests/runtime/data/golden/" + name;
}

inline std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string golden_bytes(const std::string& name) { return file_bytes(golden_path(name)); }

inline std::vector<std::uint8_t> golden_pixels(const std::string& name) {
  const std::string bytes = golden_bytes(name);
  return {bytes.begin(), bytes.end()};
}

inline std::vector<float> golden_floats(const std::string& name) {
  const std::string bytes = golden_bytes(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

inline const nlohmann::json& golden_cases() {
  static const auto cases = nlohmann::json::parse(golden_bytes("cases.json"));
  return cases;
}

/// Largest |a - b|; infinite where the sizes differ.
inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
  return largest;
}

/// Every `step`-th value.
inline std::vector<float> thinned(const std::vector<float>& values, std::size_t step) {
  std::vector<float> kept;
  for (std::size_t i = 0; i < values.size(); i += step) kept.push_back(values[i]);
  return kept;
}

/// The folder of the real data set beside the repository.
inline std::filesystem::path real_mini() { return "../shared/data/real-mini"; }

}  // namespace troupe::data
