#include "app/signals.hpp"

#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <iostream>
#include <mutex>
#include <utility>

#include "actors/system.hpp"

namespace troupe::app {

namespace {

/// A signal is seen so much later at most, and the end of what was guarded.
constexpr std::chrono::milliseconds kLookInterval{50};

std::mutex clean_up_mutex;
std::function<void()> at_leaving;

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

void wake_main_thread() { kill(getpid(), kWakeSignal); }

int wait_for_signal(std::initializer_list<int> signals, std::chrono::milliseconds timeout) {
  const sigset_t set = set_of(signals);
  const timespec limit{timeout.count() / 1000, timeout.count() % 1000 * 1'000'000};
  const int signal = sigtimedwait(&set, nullptr, &limit);
  return signal > 0 ? signal : 0;
}

void before_leaving(std::function<void()> clean_up) {
  const std::lock_guard lock(clean_up_mutex);
  at_leaving = std::move(clean_up);
}

void leave(int exit_code) {
  clean_up_mutex.lock();  // Never let go: another thread that leaves too waits for this one's end.
  if (at_leaving) at_leaving();
  std::cout.flush();
  std::cerr.flush();
  std::_Exit(exit_code);
}

void leave_at_latest(int exit_code, std::chrono::milliseconds time) {
  std::thread([exit_code, time] {
    std::this_thread::sleep_for(time);
    leave(exit_code);
  }).detach();
}

EndOnSignal::EndOnSignal(std::string when)
    : watcher_([this, when = std::move(when)] {
        while (!done_)
          if (const int signal = wait_for_signal({SIGINT, SIGTERM}, kLookInterval); signal != 0)
            leave(report_signal(signal, when));
      }) {}

EndOnSignal::~EndOnSignal() {
  done_ = true;
  watcher_.join();
}

int report_signal(int signal, const std::string& when) {
  if (!when.empty())
    std::cerr << "stopped by " + actors::signal_name(signal) + " " + when + "\n" << std::flush;
  return 128 + signal;
}

}  // namespace troupe::app
