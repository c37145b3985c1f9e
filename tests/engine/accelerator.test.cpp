#include "tests/torch_catch.hpp"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/record_function.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <future>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/execution/accelerator.hpp"
#include "runtime/state/adamw.hpp"
#include "runtime/state/gradient_norm.hpp"
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
  bool was_ahead = false;
  // The thread that launches may be held up for longer than the first piece takes.
  for (int round = 0; round < 50 && !was_ahead; ++round) {
    std::promise<void> may_begin;
    device->launch(
        [&]() -> Status {
          may_begin.get_future().wait();
          return Done{};
        },
        [] {});
    const auto first = device->launch(nothing(), [] {});
    const auto second = device->launch(
        [&]() -> Status {
          was_ahead = !first->done();
          return Done{};
        },
        [] {});
    may_begin.set_value();
    REQUIRE(completes(*second));
    CHECK(first->done());
  }
  CHECK(was_ahead);
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
  CHECK(none.error().message.find("'xla'") != std::string::npos);
  for (const char* other : {"meta", "apart:1", "cpu:0"}) CHECK_FALSE(find_place(other, 0).ok());
}

TEST_CASE("local nodes share out their machine's devices", "[engine]") {
  CHECK(device_number({NodeId{0}, 0}, true, 3) == 0);
  CHECK(device_number({NodeId{0}, 2}, true, 3) == 2);
  CHECK(device_number({NodeId{1}, 1}, true, 3) == 4);
  CHECK(device_number({NodeId{2}, 1}, false, 3) == 1);  // On a machine of its own.
  CHECK(device_number({NodeId{1}, 1}, false, 3) == 1);  // In the place of a local one, too.
}

/// Parameters of two shapes with gradients, and their state after a step of some history.
struct Trained {
  std::vector<at::Tensor> values, gradients;
  std::vector<state::AdamWState> states;

  explicit Trained(c10::Device place, at::ScalarType type) {
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{5, 3}, {7}}) {
      const auto number = at::arange(c10::multiply_integers(shape), at::kDouble).view(shape);
      values.push_back(number.sin().to(place, type));
      states.push_back(state::make_adamw_state(values.back()));
      const auto exact = states.back().exp_avg.scalar_type();
      states.back().exp_avg.copy_(number.cos().to(exact));
      states.back().exp_avg_sq.copy_(number.cos().square().to(exact));
      gradients.push_back(number.add(1).log().to(place, exact));
    }
  }
};

TEST_CASE("a device steps many parameters at once as one by one, and as a CPU", "[engine]") {
  const auto type = GENERATE(at::kDouble, at::kFloat, at::kBFloat16);
  const state::AdamWOptions options{.weight_decay = 0.2};
  Trained many(apart().place, type), single(apart().place, type), host(at::kCPU, type);
  state::adamw_steps(many.values, many.states, many.gradients, options, 0.1, 0.5, 3);
  for (const auto& gradient : many.gradients)
    CHECK(gradient.cpu().count_nonzero().item<std::int64_t>() == 0);
  for (std::size_t i = 0; i < 2; ++i) {
    for (Trained* one : {&single, &host})
      state::adamw_step(one->values[i], one->states[i], one->gradients[i], options, 0.1, 0.5, 3);
    const auto all = [&](Trained& of) {
      return std::array{of.values[i].cpu(), of.states[i].exp_avg.cpu(),
                        of.states[i].exp_avg_sq.cpu()};
    };
    const auto expected = all(host), at_once = all(many), alone = all(single);
    for (std::size_t k = 0; k < expected.size(); ++k) {
      CHECK(at::equal(at_once[k], alone[k]));
      const double near = expected[k].scalar_type() == at::kDouble  ? 1e-14
                          : expected[k].scalar_type() == at::kFloat ? 1e-6
                                                                    : 1e-2;
      CHECK(at::allclose(at_once[k], expected[k], near, near));
    }
  }
}

TEST_CASE("a device measures its gradients itself", "[engine]") {
  const auto values = at::arange(1, 2001, at::kFloat).view({40, 50}).t();
  const auto there = values.to(apart().place);
  const double expected = state::squared_norm(values);
  CHECK(std::abs(state::squared_norm(there) / expected - 1) < 1e-14);
  CHECK(state::finite(there));
  there.select(0, 3).fill_(std::numeric_limits<double>::infinity());
  CHECK_FALSE(state::finite(there));
  CHECK(std::isinf(state::squared_norm(there)));
}

/// How often this thread has asked for a number of a tensor, for which it waits.
thread_local int numbers_asked = 0;

std::unique_ptr<at::ObserverContext> note_numbers(const at::RecordFunction& call) {
  if (std::string_view(call.name()) == "aten::item") ++numbers_asked;
  return nullptr;
}

TEST_CASE("who measures a range of gradients on a device waits for no number", "[engine]") {
  const auto values = at::arange(1, 2001, at::kFloat);
  const auto there = values.to(apart().place);
  const std::vector<IndexRange> out{{100, 200}, {1900, 2000}};
  const auto noting = at::addThreadLocalCallback(at::RecordFunctionCallback(note_numbers));
  numbers_asked = 0;
  const at::Tensor numbers = state::range_numbers(there, {50, 1950}, out);
  const int asked = numbers_asked;
  const double alone = state::squared_norm(there);
  const int asked_alone = numbers_asked;
  at::removeCallback(noting);
  CHECK(asked == 0);
  CHECK(asked_alone > 0);  // Else this test shows nothing.
  CHECK(alone > 0);
  CHECK(numbers.device() == apart().place);
  const auto expected = state::measure_range(values, {50, 1950}, out);
  const auto found = state::read_measure(numbers.cpu());
  CHECK(std::abs(found.squared_norm / expected.squared_norm - 1) < 1e-14);
  CHECK(found.finite);
  there.select(0, 150).fill_(std::numeric_limits<double>::infinity());
  const auto odd = state::measure_range(there, {50, 1950}, out);
  CHECK(odd.squared_norm == found.squared_norm);
  CHECK_FALSE(odd.finite);
}

}  // namespace
}  // namespace troupe::engine
