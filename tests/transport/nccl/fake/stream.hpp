// A stream of the fake device: work that runs one piece after the other on a thread of its own.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace fake_nccl {

class Stream {
 public:
  Stream() : thread_([this] { run(); }) {}
  /// Waits for all work: end communicators first.
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void push(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    ++launched_;
    changed_.notify_all();
  }
  std::uint64_t mark() {
    const std::lock_guard lock(mutex_);
    return launched_;
  }
  bool reached(std::uint64_t mark) {
    const std::lock_guard lock(mutex_);
    return done_ >= mark;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !work_.empty() || is_stopping_; });
      if (work_.empty()) return;
      auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
      ++done_;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::uint64_t launched_ = 0, done_ = 0;
  bool is_stopping_ = false;
  std::thread thread_;  // Declared last: runs on all of the above.
};

}  // namespace fake_nccl
