#include "engine/execution/loss_listeners.hpp"

#include <utility>

namespace troupe::engine {

void LossListeners::add(std::weak_ptr<LossListener> listener) {
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const auto& one) { return one.expired(); });
  all_.push_back(std::move(listener));
}

void LossListeners::lose(transport::Peer peer, const Error& why) {
  std::vector<std::weak_ptr<LossListener>> all;
  {
    const std::lock_guard lock(mutex_);
    all = all_;
  }
  for (const auto& one : all)
    if (const auto listener = one.lock()) listener->lose(peer, why);
}

}  // namespace troupe::engine
