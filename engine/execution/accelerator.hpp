// A device with memory of its own: a GPU, or whatever LibTorch knows by a plug-in.
//
// Speaks to LibTorch alone, whose generic streams and events are those of any backend: nothing here
// names a vendor. Work is launched by a thread of the device's, which goes on to the next piece
// while the device computes; another thread waits for what was launched and says that it is done.

#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/execution/copy_stream.hpp"
#include "engine/execution/device.hpp"

namespace troupe::engine {

class Accelerator final : public Device {
 public:
  /// REQUIRES: `options.place` was found and is no CPU.
  explicit Accelerator(const DeviceOptions& options);
  ~Accelerator() override;

  c10::Device place() const override { return place_; }
  std::shared_ptr<const Launch> launch(Work work, std::function<void()> on_done) override;
  at::Tensor host_buffer(at::IntArrayRef shape, at::ScalarType dtype) override;
  at::Tensor to_host(at::Tensor tensor) override;
  void write_to_host(at::Tensor tensor, at::Tensor host) override;
  at::Tensor to_device(at::Tensor buffer) override;
  at::Tensor bring(at::Tensor buffer) override;
  MemoryKind memory() const override;
  std::function<void()> entry() const override;
  std::optional<Staging> staging() const override { return kStaging; }
  std::shared_ptr<const Launch> copy_out(at::Tensor tensor, at::Tensor host,
                                         std::function<void()> on_done) override;
  void drop() override;
  void wait() override;

 private:
  /// A piece is long enough for a bus, and 32 MiB of them hide what a network needs to begin.
  static constexpr Staging kStaging{std::size_t{4} << 20, 8};

  struct Piece {
    Work work;
    std::function<void()> on_done;
    std::shared_ptr<Launch> launch;
    std::vector<at::Tensor> kept;     ///< What the device may still read or write.
    std::optional<c10::Event> event;  ///< Behind all that was launched; none where it failed.
    bool is_device_lost = false;
    Status status = Done{};
  };

  Status enter() const;
  void launch_pieces(const DeviceOptions& options);
  void complete_pieces();
  void run(Piece& piece);

  c10::Device place_;
  std::mutex mutex_;
  std::condition_variable changed_;  ///< Of what follows.
  std::deque<Piece> waiting_;        ///< Not yet launched.
  std::deque<Piece> launched_;
  bool is_launching_ = false;
  bool is_completing_ = false;
  bool stops_ = false;
  std::optional<Error> failed_;  ///< What the pieces behind a failed one complete with.

  std::vector<at::Tensor> kept_;  ///< Of the piece that is being launched.
  CopyStream copies_;
  std::thread launcher_;  // Last: they use all of the above.
  std::thread completer_;
};

}  // namespace troupe::engine
