#include "tests/torch_catch.hpp"

#include "engine/execution/copy_stream.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <thread>
#include <vector>

#include "engine/execution/device_place.hpp"
#include "engine/execution/device_streams.hpp"
#include "tests/engine/apart_device.hpp"

namespace troupe::engine {
namespace {

at::Tensor all(double value) { return at::full({64}, value, at::kDouble); }

at::Tensor unwritten(Device& device) {
  return device.host_buffer({64}, at::kDouble).fill_(std::numeric_limits<double>::quiet_NaN());
}

/// A tensor of the device, whose work has completed.
at::Tensor made_on(Device& device, double value) {
  at::Tensor made;
  const at::Tensor buffer = device.host_buffer({64}, at::kDouble).fill_(value);
  const auto launch = device.launch(
      [&]() -> Status {
        made = device.to_device(buffer);
        return Done{};
      },
      [] {});
  REQUIRE(completes(*launch));
  return made;
}

TEST_CASE("what a device brings in is there for the work that takes it", "[engine]") {
  const auto device = make_device(apart());
  const at::Tensor buffer = device->host_buffer({64}, at::kDouble).fill_(4);
  at::Tensor outside;
  const auto launch = device->launch(
      [&]() -> Status {
        outside = device->to_host(device->bring(buffer).mul(2));
        return Done{};
      },
      [] {});
  REQUIRE(completes(*launch));
  CHECK(launch->status().ok());
  CHECK(at::equal(outside, all(8)));
}

TEST_CASE("on another stream nothing is there before somebody waits", "[engine]") {
  // Else the case above shows nothing.
  const c10::Device place = apart().place;
  const c10::impl::VirtualGuardImpl guard(place.type());
  const auto device = make_device(apart());
  const at::Tensor buffer = device->host_buffer({64}, at::kDouble).fill_(4);
  const c10::Stream other = guard.getNewStream(place);
  at::Tensor inside;
  c10::Event arrived(place.type());
  {
    const c10::StreamGuard on_other(other);
    inside = buffer.to(place, /*non_blocking=*/true);
    arrived.record(other);
  }
  CHECK(std::isnan(inside[0].item<double>()));
  arrived.block(guard.getStream(place));
  CHECK(inside[0].item<double>() == 4);
}

TEST_CASE("what is copied out is there when it is said to be", "[engine]") {
  const DeviceOptions options =
      GENERATE(0, 1) == 0 ? DeviceOptions{.delay_ms_max = 2, .seed = 3} : apart();
  const auto device = make_device(options);
  const at::Tensor made = made_on(*device, 3);
  const at::Tensor host = unwritten(*device);
  std::atomic<int> told = 0;
  const auto copy = device->copy_out(made, host, [&] { ++told; });
  REQUIRE(completes(*copy));
  CHECK(at::equal(host, all(3)));
  CHECK(copy->status().ok());
  for (int round = 0; round < 10'000 && told == 0; ++round)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  CHECK(told == 1);
}

TEST_CASE("copies of a device whose streams others have say so", "[engine][errors]") {
  DeviceOptions options = apart();
  options.place = find_place("apart", 3).value();
  const auto device = make_device(options);
  const at::Tensor made = made_on(*device, 3);
  std::vector<DeviceStreams::Own> held;
  for (int more = 0; more < 32; ++more) held.push_back(DeviceStreams::take(options.place).value());
  const auto copy = device->copy_out(made, unwritten(*device), [] {});
  REQUIRE(completes(*copy));
  REQUIRE_FALSE(copy->status().ok());
  INFO(copy->status().error().message);
  CHECK(copy->status().error().message.starts_with("the device failed: all 32 streams of "));
  held.pop_back();
  const at::Tensor host = unwritten(*device);
  const auto next = device->copy_out(made, host, [] {});
  REQUIRE(completes(*next));
  CHECK(next->status().ok());
  CHECK(at::equal(host, all(3)));
}

TEST_CASE("copies do not wait for work, nor work for copies", "[engine]") {
  const DeviceOptions options =
      GENERATE(0, 1) == 0 ? DeviceOptions{.delay_ms_max = 2, .seed = 3} : apart();
  const auto device = make_device(options);
  const at::Tensor made = made_on(*device, 3);
  std::atomic<bool> may_end = false;
  const auto work = device->launch(
      [&]() -> Status {
        for (int round = 0; round < 100'000 && !may_end; ++round)
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        return Done{};
      },
      [] {});
  const auto copy = device->copy_out(made, unwritten(*device), [] {});
  CHECK(completes(*copy));
  CHECK_FALSE(work->done());
  may_end = true;
  CHECK(completes(*work));
}

TEST_CASE("behind a drop no copy is under way", "[engine]") {
  const DeviceOptions options =
      GENERATE(0, 1) == 0 ? DeviceOptions{.delay_ms_max = 80, .seed = 3} : apart();
  const auto device = make_device(options);
  const at::Tensor made = made_on(*device, 3);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::shared_ptr<const Launch>> copies;
    for (int i = 0; i < 50; ++i)
      copies.push_back(device->copy_out(made, unwritten(*device), [] {}));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    device->drop();
    const auto done = [&] {
      return std::ranges::count_if(copies, [](const auto& copy) { return copy->done(); });
    };
    const auto before = done();
    std::this_thread::sleep_for(std::chrono::milliseconds(12));
    CHECK(done() == before);
  }
}

TEST_CASE("a delayed device tells of memory that is written while a copy reads it",
          "[engine][errors]") {
  const auto device = make_device({.delay_ms_max = 2, .seed = 1});
  const at::Tensor made = made_on(*device, 3);
  const at::Tensor host = unwritten(*device);
  std::promise<void> both_begun;
  const auto first = device->copy_out(made, unwritten(*device), [&] {
    both_begun.get_future().wait();
    made.fill_(-1);  // As somebody does who waits for one of two copies.
  });
  const auto copy = device->copy_out(made, host, [] {});
  both_begun.set_value();
  REQUIRE(completes(*copy));
  CHECK(first->status().ok());
  REQUIRE_FALSE(copy->status().ok());
  CHECK(copy->status().error().message ==
        "memory of the device was written while a copy still read it");
}

}  // namespace
}  // namespace troupe::engine
