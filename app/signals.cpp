#include "app/signals.hpp"

#include <linux/close_range.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iostream>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/link/system.hpp"

namespace troupe::app {

namespace {

/// A signal is seen so much later at most, and the end of what was guarded.
constexpr std::chrono::milliseconds kLookInterval{50};

std::mutex clean_up_mutex;
std::vector<std::function<void()>> at_leaving;

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

sigset_t ending_and(std::initializer_list<int> others) {
  sigset_t set = set_of(others);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (ends_process(signal)) sigaddset(&set, signal);
  return set;
}

int wait_for(const sigset_t& set, std::chrono::milliseconds timeout) {
  const timespec limit{timeout.count() / 1000, timeout.count() % 1000 * 1'000'000};
  const int signal = sigtimedwait(&set, nullptr, &limit);
  return signal > 0 ? signal : 0;
}

}  // namespace

void block_signals(std::initializer_list<int> others) {
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t set = ending_and(others);
  sigaddset(&set, kWakeSignal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

bool ends_process(int signal) {
  if (signal != SIGHUP) return signal == SIGINT || signal == SIGTERM;
  // Blocked signals stay waiting even where they are ignored: it must be asked for.
  struct sigaction action {};
  return sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler != SIG_IGN;
}

void wake_main_thread() { kill(getpid(), kWakeSignal); }

int wait_for_signal(std::initializer_list<int> others, std::chrono::milliseconds timeout) {
  return wait_for(ending_and(others), timeout);
}

int take_signals_until(const std::function<bool()>& is_over, std::initializer_list<int> others,
                       const std::function<EndLimits()>& limits,
                       const std::function<void(int)>& take) {
  sigset_t set = ending_and(others);
  sigaddset(&set, kWakeSignal);
  auto taken_at = std::chrono::steady_clock::time_point::min();
  int last = 0;
  bool is_second = false;
  while (!is_over()) {
    const int signal = wait_for(set, last == 0 ? kWaitMax : kLookInterval);
    const auto now = std::chrono::steady_clock::now();
    if (last != 0 && now - taken_at > (is_second ? limits().second : limits().first)) return last;
    if (ends_process(signal)) {
      if (last != 0 && now - taken_at < kSameSignal) continue;
      is_second = last != 0;
      last = signal;
      taken_at = now;
    }
    if (signal != 0 && signal != kWakeSignal) take(signal);
  }
  return 0;
}

int wait_for_signal_only(std::initializer_list<int> signals, std::chrono::milliseconds timeout) {
  return wait_for(set_of(signals), timeout);
}

void before_leaving(std::function<void()> clean_up) {
  const std::lock_guard lock(clean_up_mutex);
  at_leaving.push_back(std::move(clean_up));
}

namespace {

void clean_up_for_good() {
  clean_up_mutex.lock();  // Never let go: another thread that leaves too waits for this one's end.
  for (const auto& clean_up : at_leaving) clean_up();
  std::cout.flush();
  std::cerr.flush();
}

}  // namespace

void leave(int exit_code) {
  clean_up_for_good();
  std::_Exit(exit_code);
}

namespace {

[[noreturn]] void begin_anew(std::vector<std::string> words, int exit_code) {
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // Libraries leave sockets and files open that a program begun anew would hold for ever.
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  execv("/proc/self/exe", arguments.data());
  leave_at_latest(exit_code, std::chrono::milliseconds(0));  // Should nobody read this.
  std::cerr << "troupe: it cannot begin again: " << std::strerror(errno) << std::endl;
  std::_Exit(exit_code);
}

}  // namespace

void leave_into(std::vector<std::string> words, int exit_code) {
  clean_up_for_good();
  begin_anew(std::move(words), exit_code);
}

void leave_at_latest(int exit_code, std::chrono::milliseconds time,
                     std::vector<std::string> words) {
  std::thread([exit_code, time, words = std::move(words)] {
    std::this_thread::sleep_for(time);
    std::thread([exit_code, words] {
      if (!words.empty()) leave_into(words, exit_code);
      leave(exit_code);
    }).detach();
    // What is written may stand in a pipe that nobody reads, and whoever leaves in good order waits
    // for it; so may another thread that leaves and has cleaned up.
    std::this_thread::sleep_for(kLastWordsTime);
    if (!words.empty()) begin_anew(words, exit_code);
    std::_Exit(exit_code);
  }).detach();
}

void leave_on_signal(int signal, const std::string& when) {
  leave_at_latest(128 + signal, kLastWordsTime);
  leave(report_signal(signal, when));
}

void say_last(int exit_code, int signal, const std::vector<std::string>& words,
              const std::function<void()>& say) {
  {
    const EndOnSignal guard("");
    if (signal != 0) leave_at_latest(exit_code, kLeaveTime, words);
    say();
  }
  if (signal == 0) leave_at_latest(exit_code, kLeaveTime, words);
}

EndOnSignal::EndOnSignal(std::string when)
    : watcher_([this, when = std::move(when)] {
        while (!done_)
          if (const int signal = wait_for_signal({}, kLookInterval); signal != 0)
            leave_on_signal(signal, when);
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
