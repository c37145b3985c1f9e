// A peer that leaves is an error of a connection, not the end of a process that others own.

#pragma once

#include <csignal>
#include <ctime>

namespace troupe::app {

/// While this lives, SIGPIPE does not reach the calling thread; threads that it starts meanwhile
/// never get it. One that came meanwhile is forgotten.
class WithoutPipeSignal {
 public:
  WithoutPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutPipeSignal() {
    const timespec no_time{};
    if (sigismember(&before_, SIGPIPE) == 0)
      while (sigtimedwait(&pipe_, nullptr, &no_time) > 0) continue;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutPipeSignal(const WithoutPipeSignal&) = delete;
  WithoutPipeSignal& operator=(const WithoutPipeSignal&) = delete;

 private:
  sigset_t pipe_{}, before_{};
};

}  // namespace troupe::app
