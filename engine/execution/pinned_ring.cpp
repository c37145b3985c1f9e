#include "engine/execution/pinned_ring.hpp"

#include <cstdint>
#include <utility>

namespace troupe::engine {

PinnedRing::PinnedRing(Device& device, Staging staging) : device_(device), staging_(staging) {}

PinnedRing::Place PinnedRing::take(std::function<void()> on_return) {
  at::Tensor memory;
  {
    const std::lock_guard lock(free_->mutex);
    if (!free_->places.empty()) {
      memory = std::move(free_->places.back());
      free_->places.pop_back();
    }
  }
  if (!memory.defined()) {
    if (made_ == staging_.pieces) return nullptr;
    memory = device_.host_buffer({static_cast<std::int64_t>(staging_.piece_bytes)}, at::kByte);
    ++made_;
  }
  return {new at::Tensor(std::move(memory)),
          [free = free_, on_return = std::move(on_return)](const at::Tensor* place) {
            const std::unique_ptr<const at::Tensor> own(place);
            {
              const std::lock_guard lock(free->mutex);
              free->places.push_back(*own);
            }
            on_return();
          }};
}

}  // namespace troupe::engine
