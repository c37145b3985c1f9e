// Values that users choose by name: one table gives both directions and the error.

#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/vocabulary/nearest_word.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe {

template <class Value, std::size_t N>
using NamedValues = std::array<std::pair<Value, std::string_view>, N>;

/// `what` says in words what is looked for, `where` which key named it.
/// Errors: not_found: no value has this name; the fix is `name_fix`.
template <class Value, std::size_t N>
Result<Value> find_named(const NamedValues<Value, N>& table, std::string_view name,
                         const std::string& what, const char* where) {
  std::vector<std::string> names;
  for (const auto& [value, known] : table) {
    if (known == name) return value;
    names.emplace_back(known);
  }
  return Error{Errc::not_found, "no " + what + " is called '" + std::string(name) + "'", where,
               name_fix(name, names)};
}

/// "unknown" for a value that is not in the table.
template <class Value, std::size_t N>
constexpr std::string_view name_of(const NamedValues<Value, N>& table, Value value) {
  for (const auto& [known, name] : table)
    if (known == value) return name;
  return "unknown";
}

}  // namespace troupe
