// What all communicators of one device share: the library, the thread that calls it, the watchdog's
// clock, and how long NCCL may take. Thread-safe.

#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "transport/nccl/nccl_library.hpp"
#include "transport/nccl/nccl_timer.hpp"
#include "transport/nccl/nccl_worker.hpp"

namespace troupe::transport {

struct NcclLimits {
  /// How long one call of NCCL may take until the thread in it is left behind. Calls that promise
  /// not to wait take micro- to milliseconds, but the first one on a GPU loads its kernels.
  std::chrono::milliseconds stuck{3000};
  /// How long NCCL may take to let go of a communicator that is given up. Beyond it the process has
  /// to end: nobody can free the GPU otherwise.
  std::chrono::milliseconds release{10000};
};

struct NcclContext {
  explicit NcclContext(std::shared_ptr<const NcclLibrary> nccl, const NcclLimits& its_limits = {})
      : library(std::move(nccl)), limits(its_limits), worker(its_limits.stuck) {}

  const std::shared_ptr<const NcclLibrary> library;
  const NcclLimits limits;
  NcclTimer timer;
  NcclWorker worker;  // Declared last: its tasks set times.
};

/// Puts a new thread in the place of the worker's where that one, a while from now, still is in the
/// call that it is in now.
inline void replace_when_stuck(const std::shared_ptr<NcclContext>& context) {
  context->timer.at(
      std::chrono::steady_clock::now() + context->limits.stuck + std::chrono::milliseconds(1),
      [weak = std::weak_ptr(context)] {
        if (const auto device = weak.lock()) device->worker.replace_if_stuck();
      });
}

}  // namespace troupe::transport
