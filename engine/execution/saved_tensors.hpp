// What autograd saves in the forward of one part: where it lies until the backward, on the device
// or in host memory.
//
// LibTorch offers hooks of saved tensors to whoever runs its engine. Used in work of the device,
// one call at a time, on any of its threads.

#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

class Device;

class SavedTensors {
 public:
  SavedTensors();
  ~SavedTensors();
  SavedTensors(const SavedTensors&) = delete;
  SavedTensors& operator=(const SavedTensors&) = delete;

  /// While alive, what autograd saves on this thread belongs to `of`, which outlives it. Does not
  /// nest.
  class Collect {
   public:
    explicit Collect(SavedTensors& of);
    ~Collect();
    Collect(const Collect&) = delete;
    Collect& operator=(const Collect&) = delete;
  };

  /// Copies memory that nothing but these tensors holds to host memory, each block once, and lets
  /// go of the device's: not parameters, numbers of the host, rows that came in, outputs and what
  /// several parts share. A backward then needs `fetch` before; without it, it throws c10::Error.
  /// Returns the bytes that were let go of. In host memory there are as many.
  Bytes offload(Device& device);

  /// The same blocks as memory of the device, with the same bits, and the host's let go of. Returns
  /// their bytes.
  Bytes fetch(Device& device);

 private:
  struct Saved;
  struct Hooks;
  struct Block;
  class Engine;
  static const bool is_engine_set;  ///< In the place of LibTorch's.

  /// Those that autograd has; it frees one when its backward has used it.
  std::vector<std::weak_ptr<Saved>> saved_;
  std::vector<Block> away_;  ///< In host memory.
};

}  // namespace troupe::engine
