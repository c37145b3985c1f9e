// Copies between an accelerator and host memory beside what it computes: on a stream of its own, by
// LibTorch's generic streams and events.
//
// Thread-safe. A thread of its own puts copies to the host on the stream and tells when they are
// done, so that neither who launches work nor who waits for it is held up.

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/execution/device.hpp"
#include "engine/execution/device_streams.hpp"

namespace troupe::engine {

class CopyStream {
 public:
  /// REQUIRES: the device was found and is no CPU. What fails later is said of the copy.
  explicit CopyStream(c10::Device place);
  ~CopyStream();  ///< Gives up what is not on the stream, and waits for the rest.
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  /// As `Device::copy_out`.
  std::shared_ptr<const Launch> out(at::Tensor tensor, at::Tensor host,
                                    std::function<void()> on_done);

  /// Pinned host memory as a tensor of the device, for what the calling thread launches behind this
  /// on its current stream. REQUIRES: `buffer` is held until that has completed. Throws as LibTorch
  /// does.
  at::Tensor in(const at::Tensor& buffer);

  /// Gives up copies out that are not on the stream and waits for those that are.
  void drop();

 private:
  struct Copy {
    at::Tensor tensor;
    at::Tensor host;
    std::function<void()> on_done;
    std::shared_ptr<Launch> launch;
    std::optional<c10::Event> event;  ///< Behind it; none where it failed.
    bool is_device_lost = false;
    Status status = Done{};
  };

  void serve();
  void begin(Copy& copy);
  static bool is_over(Copy& copy);
  c10::Stream stream();

  const c10::Device place_;
  std::mutex stream_mutex_;
  DeviceStreams::Own stream_;  ///< Taken when it is needed.

  std::mutex mutex_;
  std::condition_variable changed_;  ///< Of what follows.
  std::deque<Copy> waiting_;
  std::deque<Copy> begun_;  ///< Changed by the thread alone.
  bool stops_ = false;
  std::thread thread_;  // Last: it uses all of the above.
};

}  // namespace troupe::engine
