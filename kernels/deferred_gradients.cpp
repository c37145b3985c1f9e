#include "kernels/deferred_gradients.hpp"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <utility>

namespace troupe::kernels {

namespace {

// LibTorch hands this per-thread slot on to the threads that run a device's backward, which a
// plain thread_local would not reach. PRODUCER_INFO is the slot meant for an application's own use.
constexpr auto kSlot = c10::DebugInfoKind::PRODUCER_INFO;

struct Holder : c10::DebugInfoBase {
  explicit Holder(std::shared_ptr<DeferredGradients> held) : queue(std::move(held)) {}
  std::shared_ptr<DeferredGradients> queue;
};

}  // namespace

class DeferWeightGradients::State {
 public:
  explicit State(std::shared_ptr<DeferredGradients> queue)
      : guard_(kSlot, std::make_shared<Holder>(std::move(queue))) {}

 private:
  c10::DebugInfoGuard guard_;
};

DeferWeightGradients::DeferWeightGradients(std::shared_ptr<DeferredGradients> queue)
    : state_(std::make_unique<State>(std::move(queue))) {}

DeferWeightGradients::~DeferWeightGradients() = default;

DeferredGradients* current_deferred_gradients() {
  auto* holder = static_cast<Holder*>(c10::ThreadLocalDebugInfo::get(kSlot));
  return holder ? holder->queue.get() : nullptr;
}

void accumulate_gradient(const at::Tensor& leaf, at::Tensor gradient) {
  auto& total = leaf.mutable_grad();
  if (total.defined())
    total.add_(gradient);
  else
    total = std::move(gradient);
}

void DeferredGradients::run() {
  // Work is released one by one, so that memory falls while the queue is worked off.
  for (auto& work : std::exchange(work_, {})) std::exchange(work, nullptr)();
}

}  // namespace troupe::kernels
