#include "tests/torch_catch.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cmath>
#include <future>

#include "engine/execution/accelerator.hpp"
#include "tests/engine/apart_device.hpp"

namespace troupe::engine {
namespace {

TEST_CASE("what an accelerator gives away is there when its work has completed", "[engine]") {
  const auto device = make_device(apart());
  at::Tensor buffer = device->host_buffer({64, 3}, at::kDouble);
  buffer.fill_(4);
  at::Tensor inside, outside;
  bool was_there = true;
  const auto launch = device->launch(
      [&]() -> Status {
        inside = device->to_device(buffer);
        outside = device->to_host(inside.mul(2));
        was_there = std::isfinite(outside[0][0].item<double>());
        return Done{};
      },
      [] {});
  REQUIRE(completes(*launch));
  CHECK_FALSE(was_there);                                        // Else this test shows nothing.
  CHECK(at::equal(outside, at::full({64, 3}, 8, at::kDouble)));  // First: other copies wait for it.
  CHECK(inside.device() == apart().place);
  CHECK(at::equal(inside.cpu(), at::full({64, 3}, 4, at::kDouble)));
}

TEST_CASE("an accelerator launches work before what it launched first has completed", "[engine]") {
  const auto device = make_device(apart());
  std::shared_ptr<const Launch> first;
  std::promise<void> may_begin;
  bool was_done = true;
  device->launch(
      [&]() -> Status {
        may_begin.get_future().wait();
        return Done{};
      },
      [] {});
  first = device->launch(nothing(), [] {});
  const auto second = device->launch(
      [&]() -> Status {
        was_done = first->done();
        return Done{};
      },
      [] {});
  may_begin.set_value();
  REQUIRE(completes(*second));
  CHECK(first->done());
  CHECK_FALSE(was_done);
}

TEST_CASE("an accelerator that goes away completes what it has launched", "[engine]") {
  auto device = make_device(apart());
  std::promise<void> entered;
  const auto launch = device->launch(
      [&]() -> Status {
        entered.set_value();
        return Done{};
      },
      [] {});
  entered.get_future().wait();
  device.reset();
  CHECK(launch->done());
}

TEST_CASE("devices are found by LibTorch's names, counted round", "[engine][errors]") {
  CHECK(find_place("cpu", 3).value().is_cpu());
  const auto first = apart().place;  // Loads it.
  CHECK(first.index() == 1);
  const auto count = c10::impl::getDeviceGuardImpl(first.type())->deviceCount();
  CHECK(find_place("apart", count + 1).value() == first);
  const auto unknown = find_place("abacus", 0);
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().where == "cluster.device");
  CHECK(unknown.error().message.find("'abacus'") != std::string::npos);
  CHECK(unknown.error().fix.find("plugins.libraries") != std::string::npos);
  const auto none = find_place("xla", 0);  // LibTorch knows the name alone.
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().message.find("none is there") != std::string::npos);
}

TEST_CASE("local nodes share out their machine's devices", "[engine]") {
  CHECK(device_number({NodeId{0}, 0}, 2, 3) == 0);
  CHECK(device_number({NodeId{0}, 2}, 2, 3) == 2);
  CHECK(device_number({NodeId{1}, 1}, 2, 3) == 4);
  CHECK(device_number({NodeId{2}, 1}, 2, 3) == 1);  // On a machine of its own.
}

}  // namespace
}  // namespace troupe::engine
