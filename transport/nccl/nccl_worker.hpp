// The thread that calls NCCL for one device: all calls of all communicators in one order, and the
// questions that are asked again and again until they are answered.
//
// NCCL may hang in any call, also in those that promise not to wait. A thread that does is left
// behind, and a new one goes on with what waits; that is why nothing here joins a thread.
// Thread-safe.

#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace troupe::transport {

class NcclWorker {
 public:
  /// `stuck_after`: how long one task may take until its thread counts as stuck.
  explicit NcclWorker(std::chrono::milliseconds stuck_after);
  /// Drops what waits, and waits for the thread, but no longer than `stuck_after`.
  ~NcclWorker();
  NcclWorker(const NcclWorker&) = delete;
  NcclWorker& operator=(const NcclWorker&) = delete;

  /// Runs `task` behind all that was posted.
  void post(std::function<void()> task);
  /// Runs `task` before all that waits.
  void post_first(std::function<void()> task);
  /// Calls `ask` over and over, between tasks, until it returns true. It must not wait.
  void poll(std::function<bool()> ask);

  /// Whether the thread has been in one task for longer than `stuck_after`.
  bool is_stuck() const;

  /// Puts a new thread in the place of one that has been in one task for longer than `stuck_after`.
  /// Returns whether it did. What that one holds is run no further, should it ever return.
  bool replace_if_stuck();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace troupe::transport
