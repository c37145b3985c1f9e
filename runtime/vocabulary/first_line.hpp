// What others say over many lines, for errors of ours, which have one.
//
// Pure.

#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// Up to the first line break, which does not belong to it: all where there is none.
inline std::string first_line(std::string_view words) {
  return std::string(words.substr(0, words.find('\n')));
}

}  // namespace troupe
