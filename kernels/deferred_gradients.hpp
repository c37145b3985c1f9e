// Weight gradients that a backward pass leaves for later, so that a pipeline can send input
// gradients upstream first and fill its idle time with the rest.
//
// Split backward as measured for zero-bubble schedules: the queue keeps each linear layer's input
// and output gradient; nothing is recomputed.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace troupe::kernels {

/// The weight-gradient work of one backward pass. Owned by one stage, per microbatch and part;
/// used by one thread at a time.
class DeferredGradients {
 public:
  /// Appends work; called by the backward functions of `kernels/`.
  void add(std::function<void()> work) { work_.push_back(std::move(work)); }

  /// Runs all work in the order it was added, and forgets it: every weight's `grad()` then holds
  /// the same bits as after a plain backward. Frees what the work held.
  void run();

  bool empty() const { return work_.empty(); }       ///< Nothing waits.
  std::size_t size() const { return work_.size(); }  ///< Pieces of work that wait.

 private:
  std::vector<std::function<void()>> work_;
};

/// While alive, a backward pass started by this thread puts weight gradients into `queue`. Also
/// reaches the threads on which autograd runs a device's backward. Nests; the innermost counts.
class DeferWeightGradients {
 public:
  explicit DeferWeightGradients(std::shared_ptr<DeferredGradients> queue);  ///< From here on.
  ~DeferWeightGradients();  ///< The guard around it counts again.
  DeferWeightGradients(const DeferWeightGradients&) = delete;
  DeferWeightGradients& operator=(const DeferWeightGradients&) = delete;

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// The queue of the innermost guard on this thread, or nullptr: compute weight gradients now.
DeferredGradients* current_deferred_gradients();

/// Adds to a leaf's gradient as autograd's own accumulation does: the first one is kept, later ones
/// are added to it.
void accumulate_gradient(const at::Tensor& leaf, at::Tensor gradient);

}  // namespace troupe::kernels
