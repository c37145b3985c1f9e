#include "engine/execution/device.hpp"

#include <ATen/ops/empty.h>

#include <utility>

#include "engine/execution/accelerator.hpp"
#include "engine/execution/delayed_device.hpp"
#include "runtime/observe/trace_event.hpp"

namespace troupe::engine {

namespace {

/// A CPU that computes on the thread that launches.
class HostDevice final : public Device {
 public:
  std::shared_ptr<const Launch> launch(Work work, std::function<void()>) override {
    auto launch = std::make_shared<Launch>();
    launch->run(work);
    return launch;
  }
  at::Tensor host_buffer(at::IntArrayRef shape, at::ScalarType dtype) override {
    return at::empty(shape, dtype);
  }
  at::Tensor to_host(at::Tensor tensor) override { return tensor; }
  void write_to_host(at::Tensor tensor, at::Tensor host) override { host.copy_(tensor); }
  at::Tensor to_device(at::Tensor buffer) override { return buffer; }
  void drop() override {}
  void wait() override {}
};

}  // namespace

void Launch::run(const std::function<Status()>& work) { complete(begin(work)); }

Status Launch::begin(const std::function<Status()>& work) {
  const std::int64_t begin_ns = observe::thread_cpu_ns();
  Status status = work();
  cpu_ns_ = observe::thread_cpu_ns() - begin_ns;
  return status;
}

void Launch::complete(Status status, bool is_device_lost) {
  status_ = std::move(status);
  is_device_lost_ = is_device_lost;
  end_ns_ = observe::trace_now_ns();
  done_.store(true, std::memory_order_release);
}

std::shared_ptr<const Launch> Device::copy_out(at::Tensor tensor, at::Tensor host,
                                               std::function<void()>) {
  auto launch = std::make_shared<Launch>();
  launch->run([&]() -> Status {
    host.copy_(tensor);
    return Done{};
  });
  return launch;
}

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
  if (!options.place.is_cpu()) return std::make_unique<Accelerator>(options);
  if (options.delay_ms_max > 0) return std::make_unique<DelayedDevice>(options);
  return std::make_unique<HostDevice>();
}

}  // namespace troupe::engine
