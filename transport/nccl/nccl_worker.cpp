#include "transport/nccl/nccl_worker.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

namespace troupe::transport {
namespace {

using Clock = std::chrono::steady_clock;

// How long the thread rests between two rounds of questions: short while answers come, and never so
// long that a step would feel it.
constexpr std::chrono::microseconds kRestMin{10}, kRestMax{300};

}  // namespace

struct NcclWorker::State {
  std::chrono::milliseconds stuck_after;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  std::list<std::function<bool()>> asked;
  std::uint64_t turn = 0;  ///< Which thread is the worker; those of earlier turns were left behind.
  bool is_busy = false;
  Clock::time_point busy_since;
  bool is_stopping = false;
  bool is_gone = false;    ///< The thread of this turn has ended.
  std::thread::id thread;  ///< Of this turn.

  /// REQUIRES: the lock.
  bool is_stuck() const { return is_busy && Clock::now() - busy_since >= stuck_after; }

  static void start(const std::shared_ptr<State>& state) {
    std::thread([state, turn = state->turn] { state->run(turn); }).detach();
  }

  /// Runs `work` unlocked, as what this thread is busy with. Returns whether the thread still is
  /// the worker.
  template <class Work>
  bool busy(std::unique_lock<std::mutex>& lock, std::uint64_t own_turn, Work work) {
    is_busy = true;
    busy_since = Clock::now();
    lock.unlock();
    work();
    lock.lock();
    if (turn != own_turn) return false;
    is_busy = false;
    return true;
  }

  void run(std::uint64_t own_turn) {
    std::unique_lock lock(mutex);
    if (turn == own_turn) thread = std::this_thread::get_id();
    auto rest = kRestMin;
    while (!is_stopping) {
      if (!tasks.empty()) {
        auto task = std::move(tasks.front());
        tasks.pop_front();
        const bool is_worker = busy(lock, own_turn, [&task] {
          task();
          task = nullptr;  // Captures end unlocked.
        });
        if (!is_worker) return;
        rest = kRestMin;
        continue;
      }
      if (asked.empty()) {
        changed.wait(lock);
        continue;
      }
      // One round: those that were there when it began. Each is out of the list while it runs, so
      // that one which hangs is not asked by the next thread too.
      bool any_answered = false;
      for (auto left = asked.size(); left > 0 && tasks.empty() && !is_stopping; --left) {
        std::list<std::function<bool()>> one;
        one.splice(one.begin(), asked, asked.begin());
        bool is_answered = false;
        const bool is_worker = busy(lock, own_turn, [&] {
          is_answered = one.front()();
          if (is_answered) one.clear();
        });
        if (!is_worker) return;
        any_answered = any_answered || is_answered;
        asked.splice(asked.end(), one);
      }
      rest = any_answered ? kRestMin : std::min(2 * rest, kRestMax);
      if (tasks.empty() && !any_answered) changed.wait_for(lock, rest);
    }
    is_gone = true;
    changed.notify_all();
  }
};

NcclWorker::NcclWorker(std::chrono::milliseconds stuck_after) : state_(std::make_shared<State>()) {
  state_->stuck_after = stuck_after;
  State::start(state_);
}

NcclWorker::~NcclWorker() {
  // What waits may own what owns this: it ends outside the lock.
  std::deque<std::function<void()>> tasks;
  std::list<std::function<bool()>> asked;
  std::unique_lock lock(state_->mutex);
  state_->is_stopping = true;
  tasks.swap(state_->tasks);
  asked.swap(state_->asked);
  state_->changed.notify_all();
  // A task may have held the last owner of this.
  if (state_->thread != std::this_thread::get_id()) {
    state_->changed.wait_for(lock, state_->stuck_after, [this] { return state_->is_gone; });
  }
  lock.unlock();
}

void NcclWorker::post(std::function<void()> task) {
  const std::lock_guard lock(state_->mutex);
  state_->tasks.push_back(std::move(task));
  state_->changed.notify_all();
}

void NcclWorker::post_first(std::function<void()> task) {
  const std::lock_guard lock(state_->mutex);
  state_->tasks.push_front(std::move(task));
  state_->changed.notify_all();
}

void NcclWorker::poll(std::function<bool()> ask) {
  const std::lock_guard lock(state_->mutex);
  state_->asked.push_back(std::move(ask));
  state_->changed.notify_all();
}

bool NcclWorker::is_stuck() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_stuck();
}

bool NcclWorker::replace_if_stuck() {
  const std::lock_guard lock(state_->mutex);
  if (!state_->is_stuck()) return false;
  ++state_->turn;
  state_->is_busy = false;
  State::start(state_);
  return true;
}

}  // namespace troupe::transport
