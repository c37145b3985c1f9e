// Words in a row.
//
// Pure.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// `a, b, c`; empty for no words.
inline std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// The same of numbers: `0, 1, 2`.
inline std::string joined(const std::vector<std::int32_t>& numbers) {
  std::vector<std::string> words;
  for (const std::int32_t number : numbers) words.push_back(std::to_string(number));
  return joined(words);
}

}  // namespace troupe
