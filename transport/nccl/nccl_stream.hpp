// Where a communicator's work runs: a stream of a GPU and its memory, seen through what NCCL's part
// needs of them. The engine's GPU part implements it; tests do it for the fake library.
//
// Used by the one thread that calls NCCL (`NcclWorker`), but for `device` and what allocates, which
// any thread calls. Nothing here may wait for the device.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "transport/collectives/collectives.hpp"
#include "transport/nccl/nccl_abi.hpp"

namespace troupe::transport {

/// Whatever is asked of a device that is lost to its process fails with transport_failed, as a call
/// in which NCCL fails; what it has no room for with infeasible; "the device's" are these two and
/// internal.
class NcclStream {
 public:
  virtual ~NcclStream() = default;

  /// Which device this is, the same for two streams of one GPU and different for any two GPUs of
  /// the cluster (a GPU's uuid): NCCL refuses two ranks on one. At most 63 bytes.
  virtual std::string device() const = 0;

  /// CUDA's handle.
  virtual nccl::Stream handle() const = 0;

  /// Makes the calling thread one of this device. Errors: the device's.
  virtual Status make_current() = 0;

  /// Marks the end of what has been launched so far. Errors: the device's.
  virtual Result<std::uint64_t> mark() = 0;
  /// Whether the stream has come to the mark. Errors: the device's.
  virtual Result<bool> reached(std::uint64_t mark) = 0;

  /// Memory of the device, for what runs on this stream alone. Errors: the device's.
  virtual Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) = 0;
  /// The same, but what the device computes may read it once the stream is done with it, and may
  /// still do so when it is let go of. Errors: as `allocate`.
  virtual Result<std::shared_ptr<std::byte>> allocate_shared(std::size_t bytes) {
    return allocate(bytes);
  }

  /// Launches the sum of `sum_in_rank_order` (collectives/rank_order_sum.hpp) behind all that has
  /// been launched; pointers are the device's and stay valid until the stream has come to it.
  /// Errors: the device's.
  virtual Status launch_sum(std::vector<const void*> inputs, std::size_t count, Scalar scalar,
                            void* output) = 0;
};

}  // namespace troupe::transport
