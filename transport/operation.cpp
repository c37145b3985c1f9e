#include "transport/operation.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::transport {

struct Operation::State {
  mutable std::mutex mutex;
  mutable std::condition_variable done;
  std::optional<Status> status;
  std::vector<std::function<void(const Status&)>> callbacks;
  Completion::Cancel cancel;
};

Operation::Operation(Status status) : state_(std::make_shared<State>()) {
  state_->status = std::move(status);
}

Operation::Operation(std::shared_ptr<State> state) : state_(std::move(state)) {}

bool Operation::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->status.has_value();
}

Status Operation::wait(Deadline deadline) const {
  std::unique_lock lock(state_->mutex);
  const auto is_done = [this] { return state_->status.has_value(); };
  if (state_->done.wait_until(lock, deadline, is_done)) return *state_->status;
  return Error{Errc::timed_out, "a message was not there by its deadline", "", ""};
}

void Operation::on_done(std::function<void(const Status&)> callback) const {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->status) {
      state_->callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback(*state_->status);  // The status never changes once it is set.
}

void Operation::cancel() const {
  Completion::Cancel cancel;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->status) return;
    cancel = state_->cancel;
  }
  if (cancel)
    cancel(Completion(
        state_));  // Without the lock: the backend may complete the operation in the call.
}

Completion Completion::pending(Cancel cancel) {
  auto state = std::make_shared<Operation::State>();
  state->cancel = std::move(cancel);
  return Completion(std::move(state));
}

Operation Completion::operation() const { return Operation(state_); }

bool Completion::complete(Status status) const {
  if (!state_) return false;
  std::vector<std::function<void(const Status&)>> callbacks;
  Cancel cancel;  // Dies after the lock is released; it may own a lot.
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->status) return false;
    state_->status = std::move(status);
    callbacks.swap(state_->callbacks);
    cancel.swap(state_->cancel);
  }
  state_->done.notify_all();
  for (const auto& callback : callbacks) callback(*state_->status);
  return true;
}

}  // namespace troupe::transport
