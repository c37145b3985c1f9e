#include "engine/execution/work_in_hand.hpp"

#include <algorithm>
#include <utility>

#include "runtime/observe/trace_event.hpp"

namespace troupe::engine {

void WorkInHand::belong_to(Describe describe) {
  const std::lock_guard lock(mutex_);
  describe_ = std::move(describe);
  entered_.reset();
  launched_.clear();
  copying_.reset();
  wait_.reset();
}

void WorkInHand::entered(const Action* action, StageCall call) {
  const std::int64_t now_ns = observe::trace_now_ns();
  const std::lock_guard lock(mutex_);
  entered_ = Item{action, now_ns, nullptr, std::move(call)};
}

void WorkInHand::left() {
  const std::lock_guard lock(mutex_);
  entered_.reset();
}

void WorkInHand::calls(StageCall call) {
  const std::int64_t now_ns = observe::trace_now_ns();
  const std::lock_guard lock(mutex_);
  if (entered_) entered_ = Item{entered_->action, now_ns, nullptr, std::move(call)};
}

void WorkInHand::launched(const Action* action, std::shared_ptr<const Launch> launch) {
  const std::int64_t now_ns = observe::trace_now_ns();
  const std::lock_guard lock(mutex_);
  launched_.push_back({action, now_ns, std::move(launch)});
  wait_.reset();
}

void WorkInHand::taken() {
  const std::lock_guard lock(mutex_);
  if (!launched_.empty()) launched_.pop_front();
}

void WorkInHand::dropped() {
  const std::lock_guard lock(mutex_);
  launched_.clear();
  copying_.reset();
  wait_.reset();
}

void WorkInHand::copies(std::shared_ptr<const Launch> copy) {
  const std::int64_t now_ns = observe::trace_now_ns();
  const std::lock_guard lock(mutex_);
  copying_.reset();
  if (copy != nullptr) copying_ = Item{nullptr, now_ns, std::move(copy)};
}

bool WorkInHand::is_copying() const { return copying_ && !copying_->launch->done(); }

void WorkInHand::waits(LongWait present) {
  const std::lock_guard lock(mutex_);
  // It is for the same action until that is launched; what is missing says whether anything came.
  if (!wait_ || wait_->awaited != present.awaited) ++waits_;
  wait_ = std::move(present);
}

std::optional<PresentWait> WorkInHand::wait() const {
  const std::lock_guard lock(mutex_);
  if (!wait_ || is_copying()) return std::nullopt;
  return PresentWait{waits_, *wait_};
}

/// A device turns to work when that before it has completed.
std::optional<WorkInHand::Item> WorkInHand::oldest_work() const {
  std::int64_t free_ns = 0;
  for (const Item& item : launched_) {
    if (!item.launch->done())
      return Item{item.action, std::max(item.since_ns, free_ns), item.launch};
    free_ns = item.launch->end_ns();
  }
  return std::nullopt;
}

std::optional<WorkInHand::Item> WorkInHand::oldest() const {
  if (entered_) return entered_;
  auto work = oldest_work();
  if (is_copying() && (!work || copying_->since_ns < work->since_ns)) return copying_;
  return work;
}

std::optional<LongWork> WorkInHand::longer_than(double seconds) const {
  const std::lock_guard lock(mutex_);
  const auto item = oldest();
  if (!item || !describe_) return std::nullopt;
  const double took = static_cast<double>(observe::trace_now_ns() - item->since_ns) / 1e9;
  if (took < seconds) return std::nullopt;
  LongWork work = describe_(item->action, item->call);
  work.seconds = took;
  return work;
}

void WorkInHand::came(NodeId from) {
  const std::lock_guard lock(mutex_);
  ++came_[from];
}

std::int64_t WorkInHand::came_from(NodeId node) const {
  const std::lock_guard lock(mutex_);
  const auto found = came_.find(node);
  return found == came_.end() ? 0 : found->second;
}

}  // namespace troupe::engine
