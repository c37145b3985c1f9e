#include "app/stalled_read.hpp"

#include <chrono>
#include <utility>

#include "actors/node/read_watch.hpp"
#include "app/signals.hpp"
#include "app/terminal.hpp"

namespace troupe::app {

namespace {

constexpr std::chrono::milliseconds kLookInterval{50};

}  // namespace

EndOnStalledRead::EndOnStalledRead(double timeout_s, std::string setting)
    : watcher_([this, timeout_s, setting = std::move(setting)] {
        actors::ReadWatch reads(setting);
        std::unique_lock lock(mutex_);
        while (!is_over_.wait_for(lock, kLookInterval, [this] { return done_; }))
          if (auto fine =
                  reads.pass(std::chrono::steady_clock::now(), timeout_s, files::oldest_read());
              !fine.ok()) {
            leave_at_latest(exit_code(fine.error()), kLastWordsTime);  // Nobody may read this.
            leave(report(fine.error()));
          }
      }) {}

EndOnStalledRead::~EndOnStalledRead() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  is_over_.notify_one();
  watcher_.join();
}

}  // namespace troupe::app
