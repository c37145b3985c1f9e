// A send or receive under way: a shared handle that completes exactly once, with a `Status`.
//
// Thread-safe; copies share the state. `Operation` is what callers hold, `Completion` is the end
// that a backend holds.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "runtime/vocabulary/result.hpp"

namespace troupe::transport {

using Deadline = std::chrono::steady_clock::time_point;

/// Deadline so many milliseconds from now.
inline Deadline within(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

class Operation {
 public:
  /// An operation that is complete already.
  explicit Operation(Status status);

  bool done() const;

  /// Waits until it is complete. Not from a completion callback: it would wait for itself.
  /// Errors: timed_out: the deadline passed; the operation goes on and still uses its buffer.
  /// Otherwise the operation's own.
  Status wait(Deadline deadline) const;

  /// Calls `callback` once: now, in this thread, when complete already, else in the thread that
  /// completes it. The callback must not block; it may start operations.
  void on_done(std::function<void(const Status&)> callback) const;

  /// Withdraws a receive that no message has met yet: it ends as `cancelled`. Anything else goes
  /// on; end it with `Transport::disconnect`.
  void cancel() const;

 private:
  friend class Completion;
  struct State;
  explicit Operation(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// The backend's end of an operation.
class Completion {
 public:
  /// Serves `Operation::cancel`; gets the completion of the operation to be withdrawn.
  using Cancel = std::function<void(const Completion&)>;

  /// Stands for no operation: completing it does nothing.
  Completion() = default;

  /// A new pending operation.
  static Completion pending(Cancel cancel = nullptr);

  /// REQUIRES: not a default-constructed one.
  Operation operation() const;

  /// Ends the operation and runs its callbacks in this thread. Only the first call counts; returns
  /// whether this was it. REQUIRES: no lock is held that a callback's calls could need.
  bool complete(Status status) const;

  friend bool operator==(const Completion&, const Completion&) = default;

 private:
  friend class Operation;
  explicit Completion(std::shared_ptr<Operation::State> state) : state_(std::move(state)) {}

  std::shared_ptr<Operation::State> state_;
};

}  // namespace troupe::transport
