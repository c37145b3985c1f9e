#include "app/signals.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <iostream>

namespace troupe::app {

namespace {

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

}  // namespace

void block_signals(std::initializer_list<int> signals) {
  const sigset_t set = set_of(signals);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

int wait_for_signal(std::initializer_list<int> signals, std::chrono::milliseconds timeout) {
  const sigset_t set = set_of(signals);
  const timespec limit{timeout.count() / 1000, timeout.count() % 1000 * 1'000'000};
  const int signal = sigtimedwait(&set, nullptr, &limit);
  return signal > 0 ? signal : 0;
}

void leave(int exit_code) {
  std::cout.flush();
  std::cerr.flush();
  std::_Exit(exit_code);
}

void leave_at_latest(unsigned seconds) { alarm(seconds); }

}  // namespace troupe::app
