// Which functions of the user's this process is in (a policy's, a schedule's, a format's), so that
// one that never returns can be told instead of waited for. Its thread cannot be ended: whoever
// looks here ends the process.
//
// Process-wide, as the registries are, and thread-safe; nobody here measures time. What a stage is
// in the middle of its device knows, with step and samples (engine/execution/work_in_hand.hpp).

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/vocabulary/user_code.hpp"

namespace troupe::plugins {

/// A call that has begun and has not returned.
struct UserCall {
  std::int64_t number = 0;  ///< Counts calls from 1: two calls of one function are told apart.
  std::string function;     ///< As errors name it: "`plan` of policy 'mine'".

  friend bool operator==(const UserCall&, const UserCall&) = default;
};

/// Says for as long as it lives that its thread is in a function of the user's.
class CallingUser {
 public:
  explicit CallingUser(std::string function);
  ~CallingUser();
  CallingUser(const CallingUser&) = delete;
  CallingUser& operator=(const CallingUser&) = delete;

 private:
  std::int64_t number_;
};

/// The call that began first of those that have not returned; none where there is no such.
std::optional<UserCall> oldest_user_call();

/// What a function of the user's returns, which can be named meanwhile. What it throws comes as a
/// `UserFault` of that function; one of another function, which it has called, stays as it is.
template <class Call>
auto call_user(const std::string& function, Call&& call) -> decltype(call()) {
  const CallingUser calling(function);
  try {
    return call();
  } catch (const UserFault&) {
    throw;
  } catch (const std::exception& fault) {
    throw UserFault(function, std::string("throws: ") + fault.what());
  } catch (...) {
    throw UserFault(function, "throws no std::exception");
  }
}

}  // namespace troupe::plugins
