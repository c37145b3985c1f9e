// Calls of code that a user has written: what it throws is an error like any other.

#pragma once

#include <exception>
#include <stdexcept>
#include <string>

#include "runtime/vocabulary/result.hpp"

namespace troupe {

/// What left a function of the user's whose answer has no room for an error. Thrown through callers
/// that expect none; whoever ends a command or an actor tells it as an error of the user's code.
class UserFault : public std::runtime_error {
 public:
  /// `function` as in "`sizes` of family 'mine'"; `what` it does, as in "throws: no such size".
  UserFault(const std::string& function, const std::string& what)
      : std::runtime_error(function + " " + what) {}

  /// invalid_argument, with the fix.
  Error error() const { return {Errc::invalid_argument, what(), {}, "correct the plug-in"}; }
};

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
