// A device that behaves like an accelerator, on a CPU: work runs on a thread of its own, late, and
// so do copies out on a second one; host memory holds nothing but NaN before its work has completed
// and after it was let go of. Whoever forgets to wait computes NaN, finds nothing, or is told that
// he wrote what work reads.
//
// For tests (`debug.delayed_device_ms`). The results of work that is waited for are those of any
// CPU.

#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "engine/execution/device.hpp"

namespace troupe::engine {

class DelayedDevice final : public Device {
 public:
  explicit DelayedDevice(const DeviceOptions& options);
  ~DelayedDevice() override;

  std::shared_ptr<const Launch> launch(Work work, std::function<void()> on_done) override;
  at::Tensor host_buffer(at::IntArrayRef shape, at::ScalarType dtype) override;
  at::Tensor to_host(at::Tensor tensor) override;
  void write_to_host(at::Tensor tensor, at::Tensor host) override;
  at::Tensor to_device(at::Tensor buffer) override;
  /// So small that what tests send has several pieces, and more than there is room for.
  std::optional<Staging> staging() const override { return Staging{std::size_t{8} << 10, 4}; }
  std::shared_ptr<const Launch> copy_out(at::Tensor tensor, at::Tensor host,
                                         std::function<void()> on_done) override;
  void drop() override;
  void wait() override;

 private:
  struct Piece {
    Work work;
    std::function<void()> on_done;
    std::shared_ptr<Launch> launch;
  };

  struct CopyOut {
    at::Tensor tensor;
    at::Tensor before;  ///< What it held.
    at::Tensor host;
    std::function<void()> on_done;
    std::shared_ptr<Launch> launch;
  };

  void serve(const DeviceOptions& options);
  void copy_pieces();
  void run(const CopyOut& copy);
  void run(const Piece& piece);
  void sleep();
  bool is_overwritten() const;

  std::mutex mutex_;
  std::condition_variable changed_;  ///< Of what follows.
  std::deque<Piece> pieces_;
  std::deque<CopyOut> copies_out_;
  bool is_running_ = false;
  bool is_copying_ = false;
  bool stops_ = false;
  std::optional<Error> failed_;  ///< What the pieces behind a failed one complete with.

  /// Of the piece that runs: host memory, and what it gets at the end.
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
  /// The same: host memory that it reads until its end, and what was there.
  std::vector<std::pair<at::Tensor, at::Tensor>> sources_;
  double delay_ms_max_;
  std::minstd_rand random_;
  std::minstd_rand copy_random_;
  std::thread thread_;  // Last: they use all of the above.
  std::thread copier_;
};

}  // namespace troupe::engine
