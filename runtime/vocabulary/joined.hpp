// Words in a row.
//
// Pure.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// `a, b, c`; empty for no words. `last`: what stands before the last one.
inline std::string joined(const std::vector<std::string>& words, const char* last = ", ") {
  std::string text;
  for (const std::string& word : words)
    text += (text.empty() ? "" : &word == &words.back() ? last : ", ") + word;
  return text;
}

/// `a, b and c`.
inline std::string joined_by_and(const std::vector<std::string>& words) {
  return joined(words, " and ");
}

/// The first `most` (>= 1) of them, and how many are left out: `a, b and 7 others`.
inline std::string joined_up_to(std::size_t most, const std::vector<std::string>& words,
                                const std::string& others = "others") {
  const auto named = static_cast<std::ptrdiff_t>(std::min(most, words.size()));
  const std::string text = joined(std::vector(words.begin(), words.begin() + named));
  if (words.size() <= most) return text;
  return text + " and " + std::to_string(words.size() - most) + " " + others;
}

/// The same of numbers: `0, 1, 2`.
inline std::string joined(const std::vector<std::int32_t>& numbers) {
  std::vector<std::string> words;
  for (const std::int32_t number : numbers) words.push_back(std::to_string(number));
  return joined(words);
}

}  // namespace troupe
