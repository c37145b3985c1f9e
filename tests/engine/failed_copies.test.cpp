// What becomes of a step where a copy of what leaves a device fails, on real executors.

#include "tests/torch_catch.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/execution/device_errors.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

/// A device whose copies out fail where a test says so, as those of a lost GPU do.
class FailingDevice final : public Device {
 public:
  FailingDevice(std::unique_ptr<Device> inner, bool is_lost)
      : inner_(std::move(inner)), is_lost_(is_lost) {}

  bool fails = false;

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

}  // namespace
}  // namespace troupe::engine
