// Signals as values: blocked in every thread, taken by the main thread when it looks.

#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

namespace troupe::app {

/// Blocks the signals that end a process, `kWakeSignal` and `others`, in this thread and all it
/// starts; ignores SIGPIPE, because who reads the output may leave (`| head`). Call before any
/// thread is started.
void block_signals(std::initializer_list<int> others = {});

/// Whether a signal ends a process: SIGINT, SIGTERM, and SIGHUP unless the process was started to
/// outlive its terminal (nohup).
bool ends_process(int signal);

/// What `wake_main_thread` sends; blocked and waited for like the others, it means nothing.
inline constexpr int kWakeSignal = SIGUSR2;

/// How long a thread that is woken may wait at most, should nobody wake it.
inline constexpr std::chrono::milliseconds kWaitMax{1000};

/// Ends a wait for `kWakeSignal`, or the next one. From any thread.
void wake_main_thread();

/// Waits for a signal that ends the process or one of `others`, all blocked, at most `timeout`.
/// Returns it, or 0.
int wait_for_signal(std::initializer_list<int> others, std::chrono::milliseconds timeout);

/// What may pass after a signal that ends a process, and after another one, until it has ended.
struct EndLimits {
  std::chrono::milliseconds first{};
  std::chrono::milliseconds second{};
};

inline constexpr std::chrono::milliseconds kSameSignal{300};

/// Gives signals that end the process, and `others`, to `take` until `is_over` says so, asked after
/// each and whenever `wake_main_thread` was called. Returns 0; or, where it is not over when a
/// limit has passed, the last signal that ends the process: then whoever should end it does not.
/// `limits` is asked again and again after one, so that they may change meanwhile. A second one
/// within `kSameSignal` is the first one again: launchers tell a whole group of processes, and then
/// each of them.
int take_signals_until(const std::function<bool()>& is_over, std::initializer_list<int> others,
                       const std::function<EndLimits()>& limits,
                       const std::function<void(int)>& take);

/// Waits for one of these blocked signals alone.
int wait_for_signal_only(std::initializer_list<int> signals, std::chrono::milliseconds timeout);

/// Adds to what `leave` does first: for what must not stay behind and has no destructor to rely on.
void before_leaving(std::function<void()> clean_up);

/// Ends the process now, after its output is written and without destructors of statics and of the
/// actor system, which can wait for ever for a detached thread. Open files must be flushed before.
[[noreturn]] void leave(int exit_code);

/// As `leave`, but under the same process id this binary begins anew with these words, the first of
/// which is its name: nothing stays open. Signals that are blocked stay so, and none is lost. Where
/// it fails it leaves with `exit_code`.
[[noreturn]] void leave_into(std::vector<std::string> words, int exit_code);

/// What a process whose job is over may take for its last clean-up: an executor may be in the
/// middle of a long action, and nothing of it is kept.
inline constexpr std::chrono::milliseconds kLeaveTime{1000};

/// How long words may take that say why a process ends: a pipe that nobody reads is full some time.
inline constexpr std::chrono::milliseconds kLastWordsTime{300};

/// Leaves with this exit code if the process has not ended within so much time; into `words`, where
/// there are any. Within `kLastWordsTime` after that it is gone, whether its output is written or
/// not, and whatever holds up the threads that should end it.
void leave_at_latest(int exit_code, std::chrono::milliseconds time,
                     std::vector<std::string> words = {});

/// Says that a signal ended the process (`report_signal`) and leaves with 128 + the signal: within
/// twice `kLastWordsTime`, also where nobody reads it.
[[noreturn]] void leave_on_signal(int signal, const std::string& when);

/// Calls `say`, which tells how the process ends, and sees to it that it does end: after a signal
/// (`signal` is not 0) `kLeaveTime` from now, otherwise from when it was told. Until then a signal
/// ends it too: whoever reads the output may have stopped.
void say_last(int exit_code, int signal, const std::vector<std::string>& words,
              const std::function<void()>& say);

/// Ends the process on a signal that ends it (blocked) while this lives: for work that does not
/// look for signals itself. Says `stopped by Ctrl-C WHEN` on stderr and leaves with 128 + the
/// signal.
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
