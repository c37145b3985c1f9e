// The value that every function which can fail returns, and the error it carries.
//
// Pure values; no exceptions, no I/O. Broken preconditions assert instead.

#pragma once

#include <cassert>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace troupe {

/// What went wrong, coarsely: decides the exit code of a command (see `exit_code`).
enum class Errc : std::uint8_t {
  invalid_argument = 1,  ///< A value given by the user or a caller is wrong.
  infeasible,            ///< The question is well formed but has no answer.
  bad_data,              ///< A data set or sample is wrong.
  not_found,             ///< A file, key, device or peer does not exist.
  io_failed,             ///< Reading or writing a file failed.
  transport_failed,      ///< A peer vanished or bytes could not be moved.
  timed_out,             ///< A wait reached its bound.
  cancelled,             ///< Ended on purpose: shutdown, or a newer epoch number.
  unavailable,           ///< This build or machine lacks it (CUDA, NCCL, a later issue).
  internal,              ///< A defect of Troupe.
};

/// Lower-case name of a code, as printed and logged.
std::string_view to_string(Errc code);

/// A failure as a user reads it: what happened, where, why, and the fix.
struct Error {
  Errc code = Errc::internal;
  std::string message;  ///< What, which, expected and actual; one sentence, no final newline.
  std::string where;    ///< `file:line`, a job key or a sample id; empty when there is none.
  std::string fix;      ///< What the user can do; empty when there is nothing.

  friend bool operator==(const Error&, const Error&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Error& x) {
    return f(x.code, x.message, x.where, x.fix);
  }
};

/// One printable text of at most five lines: `where: message` and then the fix.
std::string to_string(const Error& error);

/// Process exit code for an error, as interfaces.md fixes them: 2 for command line, job file
/// and JSON input; 3 for data; 1 for everything that failed while running.
int exit_code(const Error& error);

/// A value or the reason why there is none.
///
/// REQUIRES for `value()`: `ok()`. REQUIRES for `error()`: `!ok()`.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      ///< There is one.
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  ///< There is none.

  bool ok() const noexcept { return state_.index() == 0; }  ///< Whether there is a value.
  explicit operator bool() const noexcept { return ok(); }

  T& value() & { return assert(ok()), *std::get_if<0>(&state_); }               ///< Lives as this.
  const T& value() const& { return assert(ok()), *std::get_if<0>(&state_); }    ///< Lives as this.
  T&& value() && { return assert(ok()), std::move(*std::get_if<0>(&state_)); }  ///< To be moved.

  const Error& error() const& { return assert(!ok()), *std::get_if<1>(&state_); }    ///< Why.
  Error&& error() && { return assert(!ok()), std::move(*std::get_if<1>(&state_)); }  ///< Why.

 private:
  std::variant<T, Error> state_;
};

/// What a function without a value returns: `Status` is success or an `Error`.
struct Done {
  friend bool operator==(const Done&, const Done&) = default;
};
using Status = Result<Done>;  ///< Success, or the reason why not.

}  // namespace troupe
