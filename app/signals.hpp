// Signals as values: blocked in every thread, taken by the main thread when it looks.

#pragma once

#include <chrono>
#include <initializer_list>

namespace troupe::app {

/// Blocks these signals in this thread and all it starts. Call before any thread is started.
void block_signals(std::initializer_list<int> signals);

/// Waits for one of these blocked signals, at most `timeout`. Returns it, or 0.
int wait_for_signal(std::initializer_list<int> signals, std::chrono::milliseconds timeout);

/// Ends the process now, after its output is written and without destructors of statics and of the
/// actor system, which can wait for ever for a detached thread. Open files must be flushed before.
[[noreturn]] void leave(int exit_code);

/// Ends the process by SIGALRM if it has not left within so many seconds.
void leave_at_latest(unsigned seconds);

}  // namespace troupe::app
