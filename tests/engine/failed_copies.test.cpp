// What becomes of a step where a copy of what leaves a device fails or hangs, on real executors.

#include "tests/torch_catch.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/execution/device_errors.hpp"
#include "engine/execution/work_in_hand.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

/// A device whose copies out fail or never end where a test says so, as those of a lost GPU do.
class FailingDevice final : public Device {
 public:
  FailingDevice(std::unique_ptr<Device> inner, bool is_lost)
      : inner_(std::move(inner)), is_lost_(is_lost) {}

  bool fails = false;
  bool hangs = false;
  std::vector<std::shared_ptr<Launch>> hung;  ///< Copies.

  std::shared_ptr<const Launch> launch(Work work, std::function<void()> on_done) override {
    return inner_->launch(std::move(work), std::move(on_done));
  }
  at::Tensor host_buffer(at::IntArrayRef shape, at::ScalarType dtype) override {
    return inner_->host_buffer(shape, dtype);
  }
  at::Tensor to_host(at::Tensor tensor) override { return inner_->to_host(std::move(tensor)); }
  void write_to_host(at::Tensor tensor, at::Tensor host) override {
    inner_->write_to_host(std::move(tensor), std::move(host));
  }
  at::Tensor to_device(at::Tensor buffer) override { return inner_->to_device(std::move(buffer)); }
  std::optional<Staging> staging() const override { return inner_->staging(); }
  std::shared_ptr<const Launch> copy_out(at::Tensor tensor, at::Tensor host,
                                         std::function<void()> on_done) override {
    if (hangs) {
      hung.push_back(std::make_shared<Launch>());
      return hung.back();
    }
    if (!fails) return inner_->copy_out(std::move(tensor), std::move(host), std::move(on_done));
    auto launch = std::make_shared<Launch>();
    launch->complete(Error{Errc::internal, "the device failed: gone", {}, {}}, is_lost_);
    return launch;
  }
  void drop() override { inner_->drop(); }
  void wait() override { inner_->wait(); }

 private:
  std::unique_ptr<Device> inner_;
  const bool is_lost_;
};

TEST_CASE("a copy that fails ends the step of its device, which is lost where it says so",
          "[engine][errors]") {
  const bool is_lost = GENERATE(false, true);
  std::vector<FailingDevice*> devices;
  job::Job job = tiny_job();
  job.debug.delayed_device_ms = 0.2;
  Cluster cluster(job, {}, {}, {}, {}, {}, [&](std::unique_ptr<Device>& device) {
    auto wrapped = std::make_unique<FailingDevice>(std::move(device), is_lost);
    devices.push_back(wrapped.get());
    device = std::move(wrapped);
  });
  cluster.train(0);
  devices.at(1)->fails = true;
  cluster.begin(1);
  const Status ended = cluster.advance_to(Progress::committing);
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().message.starts_with("the device failed: gone, in step 2 on device 1"));
  CHECK((ended.error().fix == kDeviceFix) == is_lost);
  const auto failed = cluster.executor(1).take_thrown();
  REQUIRE(failed.has_value());
  CHECK(failed->by_device == is_lost);
  CHECK(failed->step == 2);
  CHECK((failed->error == ended.error()));
  for (std::size_t device = 0; device < 4; ++device)
    REQUIRE(cluster.executor(device).abandon().ok());
}

TEST_CASE("a device whose copy hangs is said to be at it, not to wait for others",
          "[engine][errors]") {
  std::vector<FailingDevice*> devices;
  std::map<DeviceId, std::unique_ptr<WorkInHand>> hands;
  job::Job job = tiny_job();
  job.debug.delayed_device_ms = 0.2;
  Cluster cluster(
      job, {},
      [&](ExecutorOptions& options) {
        hands[options.device] = std::make_unique<WorkInHand>();
        options.in_hand = hands.at(options.device).get();
      },
      {}, {}, {},
      [&](std::unique_ptr<Device>& device) {
        auto wrapped = std::make_unique<FailingDevice>(std::move(device), false);
        devices.push_back(wrapped.get());
        device = std::move(wrapped);
      });
  cluster.train(0);
  for (const auto& [device, hand] : hands) CHECK_FALSE(hand->longer_than(0));
  FailingDevice& hanging = *devices.at(1);
  const WorkInHand& hand = *hands.at(DeviceId{1});
  hanging.hangs = true;
  cluster.begin(1);
  std::optional<LongWork> at;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!at && std::chrono::steady_clock::now() < end) {
    for (std::size_t device = 0; device < 4; ++device)
      REQUIRE(cluster.executor(device).advance().ok());
    if (!hanging.hung.empty()) at = hand.longer_than(0.3);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  REQUIRE(at);
  CHECK(at->work.step == 2);
  CHECK(at->work.error.message == "the work does not return, in step 2 on device 1");
  CHECK_FALSE(hand.wait());
  for (std::size_t device = 0; device < 4; ++device)
    REQUIRE(cluster.executor(device).abandon().ok());
  CHECK_FALSE(hand.longer_than(0));
}

}  // namespace
}  // namespace troupe::engine
