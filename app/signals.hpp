// Signals as values: blocked in every thread, taken by the main thread when it looks.

#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <initializer_list>
#include <string>
#include <thread>

namespace troupe::app {

/// Blocks these signals in this thread and all it starts. Call before any thread is started.
void block_signals(std::initializer_list<int> signals);

/// What `wake_main_thread` sends; blocked and waited for like the others, it means nothing.
inline constexpr int kWakeSignal = SIGUSR1;

/// How long a thread that is woken may wait at most, should nobody wake it.
inline constexpr std::chrono::milliseconds kWaitMax{1000};

/// Ends a wait for `kWakeSignal`, or the next one. From any thread.
void wake_main_thread();

/// Waits for one of these blocked signals, at most `timeout`. Returns it, or 0.
int wait_for_signal(std::initializer_list<int> signals, std::chrono::milliseconds timeout);

/// What `leave` does first, once: for what must not stay behind and has no destructor to rely on.
void before_leaving(std::function<void()> clean_up);

/// Ends the process now, after its output is written and without destructors of statics and of the
/// actor system, which can wait for ever for a detached thread. Open files must be flushed before.
[[noreturn]] void leave(int exit_code);

/// What a process whose job is over may take for its last clean-up: an executor may be in the
/// middle of a long action, and nothing of it is kept.
inline constexpr std::chrono::milliseconds kLeaveTime{1000};

/// Leaves with this exit code if the process has not ended within so much time.
void leave_at_latest(int exit_code, std::chrono::milliseconds time);

/// Ends the process on SIGINT or SIGTERM (blocked) while this lives: for work that does not look
/// for signals itself. Says `stopped by Ctrl-C WHEN` on stderr and leaves with 128 + the signal.
class EndOnSignal {
 public:
  explicit EndOnSignal(std::string when);
  ~EndOnSignal();
  EndOnSignal(const EndOnSignal&) = delete;
  EndOnSignal& operator=(const EndOnSignal&) = delete;

 private:
  std::atomic<bool> done_{false};
  std::thread watcher_;
};

/// Says on stderr that a signal ended the process, unless `when` is empty. Returns the exit code.
int report_signal(int signal, const std::string& when);

}  // namespace troupe::app
