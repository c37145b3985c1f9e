// Names of functions and types as their author wrote them, for errors about plug-ins.
//
// Pure.

#pragma once

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace troupe {

/// `troupe::f(int)` of `_ZN6troupe1fEi`, `mine::Own` of what `type_info::name` says; what is no
/// such name stays as it is.
inline std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  return name == nullptr ? symbol : std::string(name.get());
}

}  // namespace troupe
