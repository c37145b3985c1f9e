#include "transport/nccl/nccl_timer.hpp"

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace troupe::transport {

struct NcclTimer::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<Deadline, Id>, std::function<void()>> due;
  std::map<Id, Deadline> times;  ///< Of what is in `due`.
  Id next = 1;
  bool is_stopping = false;
  std::thread thread;

  void run() {
    std::unique_lock lock(mutex);
    while (!is_stopping) {
      if (due.empty()) {
        changed.wait(lock);
        continue;
      }
      const auto time = due.begin()->first.first;
      if (std::chrono::steady_clock::now() < time) {
        changed.wait_until(lock, time);
        continue;
      }
      auto first = due.extract(due.begin());
      times.erase(first.key().second);
      lock.unlock();
      first.mapped()();
      first.mapped() = nullptr;  // Its captures may end the timer: not under the lock.
      lock.lock();
    }
  }
};

NcclTimer::NcclTimer() : state_(std::make_shared<State>()) {
  state_->thread = std::thread([state = state_] { state->run(); });
}

NcclTimer::~NcclTimer() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_stopping = true;
  }
  state_->changed.notify_all();
  // A function may have held the last owner of this.
  if (state_->thread.get_id() == std::this_thread::get_id()) {
    state_->thread.detach();
  } else {
    state_->thread.join();
  }
}

NcclTimer::Id NcclTimer::at(Deadline time, std::function<void()> function) {
  const std::lock_guard lock(state_->mutex);
  const auto id = state_->next++;
  state_->due.emplace(std::pair(time, id), std::move(function));
  state_->times.emplace(id, time);
  state_->changed.notify_all();
  return id;
}

void NcclTimer::drop(Id id) {
  std::function<void()> dropped;  // Its captures end outside the lock.
  const std::lock_guard lock(state_->mutex);
  const auto time = state_->times.find(id);
  if (time == state_->times.end()) return;
  const auto found = state_->due.find({time->second, id});
  dropped = std::move(found->second);
  state_->due.erase(found);
  state_->times.erase(time);
}

}  // namespace troupe::transport
