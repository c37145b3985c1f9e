// A stream of an accelerator for sums by NCCL, by LibTorch's generic streams and events: CUDA's
// where its part of LibTorch is loaded. Nothing here names a vendor's API.

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/execution/device_streams.hpp"
#include "transport/nccl/nccl_stream.hpp"

namespace troupe::engine {

/// Beside the default stream, on which all else of the device runs: what it is given must be
/// complete there. Memory that it allocates is its own, so that it waits for nothing that computes.
class DeviceStream final : public transport::NcclStream {
 public:
  /// On a stream that nobody else has. Errors: unavailable: the device has no streams of its own,
  /// and LibTorch's words; as `DeviceStreams::take`.
  static Result<std::shared_ptr<transport::NcclStream>> create(c10::Device place);

  std::string device() const override;
  transport::nccl::Stream handle() const override { return handle_; }
  Status make_current() override;
  Result<std::uint64_t> mark() override;
  Result<bool> reached(std::uint64_t mark) override;
  Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) override;
  Result<std::shared_ptr<std::byte>> allocate_shared(std::size_t bytes) override;
  Status launch_sum(std::vector<const void*> inputs, std::size_t count, transport::Scalar scalar,
                    void* output) override;

 private:
  DeviceStream(c10::Device place, DeviceStreams::Own stream, void* handle)
      : place_(place), stream_(std::move(stream)), handle_(handle) {}

  std::shared_ptr<at::Tensor> own_memory(std::size_t bytes) const;

  const c10::Device place_;
  const DeviceStreams::Own stream_;
  void* const handle_;
  std::mutex mutex_;  ///< A thread that hung in NCCL may come back beside its successor.
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, c10::Event> marks_;  ///< That the stream has not come to.
};

}  // namespace troupe::engine
