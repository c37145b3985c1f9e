#include "app/progress.hpp"

#include <utility>

namespace troupe::app {

namespace {

using std::chrono::seconds;

constexpr seconds kSilent{2};       ///< Work that ends before needs no time, nor a line of its own.
constexpr seconds kRedrawEvery{1};  ///< On a terminal.
constexpr seconds kLineEvery{10};   ///< In a file or pipe.

}  // namespace

Progress::Progress(std::string doing)
    : console_(observe::detect_console(2)), doing_(std::move(doing)) {
  console_.status(text());
  clock_ = std::jthread([this](std::stop_token stop) { run(std::move(stop)); });
}

Progress::~Progress() {
  clock_.request_stop();
  clock_.join();
}

void Progress::now(std::string doing) {
  const std::scoped_lock lock(mutex_);
  doing_ = std::move(doing);
  console_.status(text());
}

void Progress::run(std::stop_token stop) {
  const bool terminal = console_.options().terminal;
  std::unique_lock lock(mutex_);
  for (auto next = begin_ + kSilent; !stop.stop_requested();
       next += terminal ? kRedrawEvery : kLineEvery) {
    woken_.wait_until(lock, stop, next, [] { return false; });
    if (stop.stop_requested()) return;
    if (terminal)
      console_.status(text());
    else
      console_.line("troupe: " + text());
  }
}

std::string Progress::text() const {
  const auto taken = std::chrono::duration_cast<seconds>(Clock::now() - begin_);
  return taken < kSilent ? doing_ + " ..." : doing_ + " (" + std::to_string(taken.count()) + " s)";
}

}  // namespace troupe::app
