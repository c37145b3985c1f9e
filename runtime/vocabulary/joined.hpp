// Words in a row.
//
// Pure.

#pragma once

#include <string>
#include <vector>

namespace troupe {

/// `a, b, c`; empty for no words.
inline std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace troupe
