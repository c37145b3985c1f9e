#include "app/stalled_read.hpp"

#include <utility>

#include "actors/node/call_watch.hpp"
#include "actors/node/read_watch.hpp"
#include "app/signals.hpp"
#include "app/terminal.hpp"

namespace troupe::app {

namespace {

using Time = std::chrono::steady_clock::time_point;

constexpr std::chrono::milliseconds kLookInterval{50};

StallWatcher::Look look_at_reads(double timeout_s, const std::string& setting) {
  return [timeout_s, reads = actors::ReadWatch(setting)](Time now) mutable {
    return reads.pass(now, timeout_s, files::oldest_read());
  };
}

StallWatcher::Look look_at_both(StallWatcher::Look reads, StallWatcher::Look calls) {
  return [reads = std::move(reads), calls = std::move(calls)](Time now) -> Status {
    if (auto fine = reads(now); !fine.ok()) return fine;
    return calls(now);
  };
}

[[noreturn]] void end_process(const Error& error) {
  leave_at_latest(exit_code(error), kLastWordsTime);  // Nobody may read this.
  leave(report(error));
}

}  // namespace

StallWatcher::StallWatcher(Look look, std::function<void(const Error&)> tell)
    : watcher_([this, look = std::move(look), tell = std::move(tell)] {
        std::unique_lock lock(mutex_);
        while (!is_over_.wait_for(lock, kLookInterval, [this] { return done_; })) {
          const Status fine = look(std::chrono::steady_clock::now());
          if (fine.ok()) continue;
          lock.unlock();
          return tell(fine.error());
        }
      }) {}

StallWatcher::~StallWatcher() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  is_over_.notify_one();
  watcher_.join();
}

StallWatcher::Look look_at_calls(double timeout_s, const std::string& setting) {
  return [timeout_s, calls = actors::CallWatch(setting)](Time now) mutable {
    return calls.pass(now, timeout_s, plugins::oldest_user_call());
  };
}

EndOnStalledRead::EndOnStalledRead(double timeout_s, const std::string& setting)
    : watcher_(look_at_reads(timeout_s, setting), end_process) {}

EndOnStalledRead::EndOnStalledRead(const job::Job& job, const std::string& whose)
    : watcher_(
          look_at_both(look_at_reads(job.data.read_timeout_s, "data.read_timeout_s" + whose),
                       look_at_calls(job.train.stall_timeout_s, "train.stall_timeout_s" + whose)),
          end_process) {}

EndOnStall::EndOnStall(double timeout_s, const std::string& setting)
    : watcher_(look_at_both(look_at_reads(timeout_s, setting), look_at_calls(timeout_s, setting)),
               end_process) {}

}  // namespace troupe::app
