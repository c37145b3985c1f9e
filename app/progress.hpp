// What a command is busy with, on standard error: for everything that may take seconds.
//
// On a terminal one line that is redrawn and in the end erased; elsewhere nothing for two seconds,
// then a whole line now and again. Standard output is left alone. Thread-safe.

#pragma once

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "runtime/observe/console.hpp"

namespace troupe::app {

class Progress {
 public:
  /// `doing`: `searching for a layout`.
  explicit Progress(std::string doing);
  /// Leaves a clean line: results and errors are printed after it.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// What comes now: `simulating step 3 of 8`.
  void now(std::string doing);

 private:
  using Clock = std::chrono::steady_clock;

  void run(std::stop_token stop);
  /// `searching for a layout ...`, later with the seconds so far.
  std::string text() const;

  observe::Console console_;
  const Clock::time_point begin_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable_any woken_;
  std::string doing_;
  std::jthread clock_;  // Last: it uses all the others.
};

/// Shows which layers are measured: for `engine::ProfileOptions::on_progress`. `progress` outlives
/// the function.
inline auto measuring(Progress& progress) {
  return [&progress](const std::string& kind, double share) {
    progress.now("measuring " + kind + ", " + std::to_string(std::lround(100 * share)) + " %");
  };
}

}  // namespace troupe::app
