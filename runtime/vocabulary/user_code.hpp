// Calls of code that a user has written: what it throws is an error like any other.

#pragma once

#include <exception>
#include <string>

#include "runtime/vocabulary/result.hpp"

namespace troupe {

/// What `call` returns, a `Result`; where it throws, an error of this kind that says what. Whoever
/// knows the code's name adds it.
template <class Call>
auto call_guarded(Errc code, Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& fault) {
    return Error{code, std::string("throws: ") + fault.what(), {}, {}};
  } catch (...) {
    return Error{code, "throws no std::exception", {}, {}};
  }
}

}  // namespace troupe
