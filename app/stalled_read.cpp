#include "app/stalled_read.hpp"

#include <chrono>

#include "actors/read_watch.hpp"
#include "app/signals.hpp"
#include "app/terminal.hpp"

namespace troupe::app {

namespace {

/// Short, because the end of what was guarded waits for it.
constexpr std::chrono::milliseconds kLookInterval{50};

}  // namespace

EndOnStalledRead::EndOnStalledRead(double timeout_s)
    : watcher_([this, timeout_s] {
        actors::ReadWatch reads;
        for (; !done_; std::this_thread::sleep_for(kLookInterval))
          if (auto fine =
                  reads.pass(std::chrono::steady_clock::now(), timeout_s, data::oldest_read());
              !fine.ok())
            leave(report(fine.error()));
      }) {}

EndOnStalledRead::~EndOnStalledRead() {
  done_ = true;
  watcher_.join();
}

}  // namespace troupe::app
