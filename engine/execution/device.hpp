// What computes the actions of a device, as its executor sees it: work is launched in order and
// completes later, by itself. A CPU completes it at once; a device with a queue of its own does
// not, and then nobody may look at what work leaves behind before it has completed.
//
// One thread launches. Work runs one piece at a time, on whatever thread the device likes.

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/vocabulary/memory_kind.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// A piece of work on a device, from its launch on.
class Launch {
 public:
  /// Whether it has completed, well or not; what it did is visible then.
  bool done() const { return done_.load(std::memory_order_acquire); }

  /// What follows REQUIRES: done.
  const Status& status() const { return status_; }
  std::int64_t end_ns() const { return end_ns_; }  ///< When it completed, by `trace_now_ns`.
  std::int64_t cpu_ns() const { return cpu_ns_; }  ///< Processor time that it took.
  /// It failed because the device is lost to this process, whatever the work did.
  bool is_device_lost() const { return is_device_lost_; }

  /// For devices: runs `work` and keeps what became of it.
  void run(const std::function<Status()>& work);
  /// For devices: the same, but what it put on its way has not completed yet.
  Status begin(const std::function<Status()>& work);
  /// For devices: it has completed with this. Once.
  void complete(Status status, bool is_device_lost = false);

 private:
  Status status_ = Done{};
  std::int64_t end_ns_ = 0;
  std::int64_t cpu_ns_ = 0;
  bool is_device_lost_ = false;
  std::atomic<bool> done_ = false;
};

/// How tensors leave a device whose memory a transport does not reach: piece by piece through a
/// ring of host memory (`StagedSends`). All devices of a job have the same.
struct Staging {
  std::size_t piece_bytes = 0;  ///< The last piece of a message may be shorter.
  std::size_t pieces = 0;       ///< That the ring has room for.
};

/// What computes: a host, or an accelerator.
class Device {
 public:
  using Work = std::function<Status()>;  ///< What runs as one piece.

  virtual ~Device() = default;

  /// Where its tensors lie.
  virtual c10::Device place() const { return c10::kCPU; }

  /// Puts `work` behind all that was launched before and does not wait for it. `work`, and what it
  /// refers to by value, is kept until it has completed. Where it has not on return, `on_done` is
  /// called when it has, from any thread. Behind work that fails nothing runs any more: it
  /// completes with the same error, until `drop`.
  virtual std::shared_ptr<const Launch> launch(Work work, std::function<void()> on_done) = 0;

  /// Host memory that a transport writes and work reads; its contents are unspecified.
  virtual at::Tensor host_buffer(at::IntArrayRef shape, at::ScalarType dtype) = 0;

  /// In work: a contiguous tensor of this device as host memory for a transport, which has its
  /// contents when the work has completed.
  virtual at::Tensor to_host(at::Tensor tensor) = 0;

  /// In work: writes a contiguous tensor of this device over host memory of its type and shape,
  /// which has the contents when the work has completed.
  virtual void write_to_host(at::Tensor tensor, at::Tensor host) = 0;

  /// In work: host memory, best a `host_buffer`, as a tensor of this device.
  virtual at::Tensor to_device(at::Tensor buffer) = 0;

  /// The same beside what was launched before, where the device can: on a stream of its own, which
  /// alone what is launched next waits for.
  virtual at::Tensor bring(at::Tensor buffer) { return to_device(std::move(buffer)); }

  /// What its memory is to a transport.
  virtual MemoryKind memory() const { return MemoryKind::host; }

  /// What threads have to call, once each, that touch its memory and are not its own; empty:
  /// nothing. May be called when the device is gone.
  virtual std::function<void()> entry() const { return {}; }

  /// How its tensors leave; none: a transport reads them where they lie.
  virtual std::optional<Staging> staging() const { return std::nullopt; }

  /// Copies a contiguous tensor of this device over host memory of its type and shape, beside what
  /// is launched and behind the copies before. REQUIRES: the work that made the tensor has
  /// completed, and nobody writes it meanwhile. Both are held, and the host's contents unspecified,
  /// until it has completed; `on_done` as of `launch`. Not for `wait`.
  virtual std::shared_ptr<const Launch> copy_out(at::Tensor tensor, at::Tensor host,
                                                 std::function<void()> on_done);

  /// Gives up what has not begun and waits for what has: nothing of it is under way any more, no
  /// copy either. What is given up never completes.
  virtual void drop() = 0;

  /// Waits for all that was launched.
  virtual void wait() = 0;
};

/// Which device, and how it computes.
struct DeviceOptions {
  /// Above 0: work completes up to so many milliseconds late, on a thread of the device's own, as
  /// on an accelerator: a test of whoever launches it.
  double delay_ms_max = 0;
  std::uint64_t seed = 0;         ///< Of the delays.
  int threads = 1;                ///< That LibTorch's operators may use.
  c10::Device place = c10::kCPU;  ///< Where its tensors lie (`find_place`).
};

/// A device of this process.
std::unique_ptr<Device> make_device(const DeviceOptions& options);

}  // namespace troupe::engine
