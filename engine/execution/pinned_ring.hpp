// A fixed number of places in host memory, of one size, for pieces on their way from a device to a
// transport: made once, and used again when the transport has let go of them.
//
// Owned by one thread; places may be given back by any, also behind the end of the ring.

#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/execution/device.hpp"

namespace troupe::engine {

class PinnedRing {
 public:
  /// Bytes of host memory; given back when nobody holds it any more.
  using Place = std::shared_ptr<const at::Tensor>;

  /// Host memory of `device`, as many pieces of it as `staging` says, each made when it is first
  /// needed.
  PinnedRing(Device& device, Staging staging);

  /// None where all are taken. `on_return` is called, from any thread, when it is free again.
  Place take(std::function<void()> on_return);

 private:
  struct Free {
    std::mutex mutex;
    std::vector<at::Tensor> places;
  };

  Device& device_;
  const Staging staging_;
  std::size_t made_ = 0;
  std::shared_ptr<Free> free_ = std::make_shared<Free>();
};

}  // namespace troupe::engine
