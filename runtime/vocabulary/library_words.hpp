// What libraries say, as users may read it.

#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// What nlohmann's JSON says, without its code in front: "parse error at line 1, column 2: ..." of
/// "[json.exception.parse_error.101] parse error at line 1, column 2: ...". Anything else stays.
inline std::string without_code(std::string_view said) {
  constexpr std::string_view kCode = "[json.exception.";
  const auto end = said.find("] ");
  if (!said.starts_with(kCode) || end == std::string_view::npos) return std::string(said);
  return std::string(said.substr(end + 2));
}

/// Whether LibTorch says that there is no memory, which it does in words alone.
inline bool is_about_memory(std::string_view said) {
  return said.find("not enough memory") != std::string_view::npos ||
         said.find("can't allocate memory") != std::string_view::npos ||
         said.find("out of memory") != std::string_view::npos;
}

}  // namespace troupe
