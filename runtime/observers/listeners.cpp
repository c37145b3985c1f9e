#include "runtime/observers/listeners.hpp"

#include <algorithm>
#include <utility>

namespace troupe::observers {

std::size_t bytes_of(const Observed& part) {
  const Dtype dtype = part.values.dtype();
  const std::size_t each = dtype == Dtype::fp64 ? 8 : dtype == Dtype::fp32 ? 4 : 2;
  return part.values.size() * each;
}

void Listeners::on_waiting(std::function<void()> tell) {
  const std::lock_guard lock(mutex_);
  tell_ = tell ? std::make_shared<const std::function<void()>>(std::move(tell)) : nullptr;
}

std::int64_t Listeners::add(Id id, const Watch& watch) {
  const std::lock_guard lock(mutex_);
  Listener& listener = listeners_[id];
  listener = {};
  listener.watch = watch;
  listener.first_step = newest_step_ + 1;
  is_anybody_ = true;
  return listener.first_step;
}

void Listeners::remove(Id id) {
  const std::lock_guard lock(mutex_);
  listeners_.erase(id);
  is_anybody_ = !listeners_.empty();
}

void Listeners::remove_all() {
  const std::lock_guard lock(mutex_);
  listeners_.clear();
  is_anybody_ = false;
}

bool Listeners::begins(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  newest_step_ = std::max(newest_step_, step);
  return std::ranges::any_of(listeners_,
                             [step](const auto& one) { return one.second.first_step <= step; });
}

bool Listeners::wants(const Listener& listener, std::int64_t step, const std::string& module,
                      Kind kind) {
  const Watch& watch = listener.watch;
  const bool kinds[] = {watch.rows, watch.gradients, watch.losses};
  return listener.first_step <= step && kinds[static_cast<std::size_t>(kind)] &&
         step % watch.every_steps == 0 && (watch.module.empty() || watch.module == module);
}

bool Listeners::wants(std::int64_t step, const std::string& module, Kind kind) const {
  if (!is_anybody_) return false;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      listeners_, [&](const auto& one) { return wants(one.second, step, module, kind); });
}

void Listeners::tell() const {
  const auto tell = [&] {
    const std::lock_guard lock(mutex_);
    return tell_;
  }();
  if (tell) (*tell)();
}

void Listeners::show(const std::shared_ptr<const Observed>& part) {
  if (!is_anybody_) return;
  const std::size_t bytes = bytes_of(*part);
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, listener] : listeners_) {
      if (!wants(listener, part->step, part->module, part->kind)) continue;
      const bool is_full = listener.parts >= listener.watch.queue ||
                           (listener.parts > 0 && listener.bytes + bytes > kWaitingBytesMax);
      ++(is_full ? listener.count.dropped : listener.count.shown);
      ++(is_full ? tally_.dropped : tally_.shown);
      if (is_full) continue;
      ++listener.parts;
      listener.bytes += bytes;
      listener.waiting.push_back({part, nullptr});
    }
  }
  tell();
}

void Listeners::show(const ObservedStep& step) {
  if (!is_anybody_) return;
  const auto shared = std::make_shared<const ObservedStep>(step);
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, listener] : listeners_) {
      if (step.step < listener.first_step) continue;
      auto& waiting = listener.waiting;
      if (std::ssize(waiting) - listener.parts >= listener.watch.queue)
        waiting.erase(std::ranges::find_if(waiting, [](const Item& one) { return !one.part; }));
      waiting.push_back({nullptr, shared});
    }
  }
  tell();
}

void Listeners::rest() {
  if (!is_anybody_) return;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, listener] : listeners_) {
      auto& waiting = listener.waiting;
      const bool is_said = !waiting.empty() && !waiting.back().part && !waiting.back().step;
      if (!is_said) waiting.emplace_back();
    }
  }
  tell();
}

std::int64_t Listeners::next_step() const {
  const std::lock_guard lock(mutex_);
  return newest_step_ + 1;
}

std::optional<Listeners::Item> Listeners::take(Id id) {
  const std::lock_guard lock(mutex_);
  const auto found = listeners_.find(id);
  if (found == listeners_.end() || found->second.waiting.empty()) return std::nullopt;
  Listener& listener = found->second;
  Item item = std::move(listener.waiting.front());
  listener.waiting.pop_front();
  if (item.part) {
    --listener.parts;
    listener.bytes -= bytes_of(*item.part);
  }
  return item;
}

Listeners::Count Listeners::count(Id id) const {
  const std::lock_guard lock(mutex_);
  const auto found = listeners_.find(id);
  return found == listeners_.end() ? Count{} : found->second.count;
}

Tally Listeners::take_tally() {
  const std::lock_guard lock(mutex_);
  return std::exchange(tally_, {});
}

}  // namespace troupe::observers
