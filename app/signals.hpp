// Signals as values: blocked in every thread, taken by the main thread when it looks.

#pragma once

#include <chrono>
#include <initializer_list>

namespace troupe::app {

/// Blocks these signals in this thread and all it starts. Call before any thread is started.
void block_signals(std::initializer_list<int> signals);

/// Waits for one of these blocked signals, at most `timeout`. Returns it, or 0.
int wait_for_signal(std::initializer_list<int> signals, std::chrono::milliseconds timeout);

}  // namespace troupe::app
