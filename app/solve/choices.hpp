// Names that a field of a problem takes, as `troupe solve --schema` shows them.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::app {

/// `"one" | "two" | "three"`, in lines of at most 92 columns that begin behind `indent` spaces, but
/// the first, which the caller began there.
inline std::string choices(const std::vector<std::string>& names, std::size_t indent) {
  constexpr std::size_t kColumns = 92;
  std::string text;
  std::size_t column = indent;
  for (const std::string& name : names) {
    const bool is_first = text.empty();
    const std::size_t width = name.size() + 2;
    if (!is_first) text += " |";
    if (is_first || column + width + 5 <= kColumns) {
      text += is_first ? "" : " ";
    } else {
      text += "\n" + std::string(indent, ' ');
      column = indent;
    }
    text += '"' + name + '"';
    column += width + 3;
  }
  return text;
}

}  // namespace troupe::app
