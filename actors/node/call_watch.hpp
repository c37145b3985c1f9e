// Notices that a function of a plug-in (a policy's, a schedule's, a format's) does not return: the
// thread that could say so is in it, and cannot be ended.

#pragma once

#include <optional>
#include <string>
#include <utility>

#include "actors/link/heartbeat.hpp"
#include "runtime/plugins/user_calls.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::actors {

/// Pure; time is handed in.
class CallWatch {
 public:
  /// `setting`: what the user raises where a call may take longer, for the error.
  explicit CallWatch(std::string setting = "train.stall_timeout_s")
      : setting_(std::move(setting)) {}

  /// Time passes; `oldest`: what `plugins::oldest_user_call` says now. Call it as
  /// `ReadWatch::pass`. Errors: internal: this call has not returned for longer than `timeout_s`.
  /// No outer trouble, which may be over when a job begins again: it is called with the same
  /// arguments then.
  Status pass(Time now, double timeout_s, const std::optional<plugins::UserCall>& oldest);

 private:
  std::string setting_;
  OldestWait wait_;
};

}  // namespace troupe::actors
