#include "tests/torch_catch.hpp"

#include "engine/execution/saved_tensors.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <memory>
#include <optional>

#include "engine/execution/device.hpp"
#include "kernels/linear.hpp"

namespace troupe::engine {
namespace {

/// Two products with what is between them; weights and input are the same each time.
struct Graph {
  at::Tensor weight, input, output;
  SavedTensors saved;

  explicit Graph(bool collects = true) {
    auto generator = at::detail::createCPUGenerator(7);
    weight = at::randn({8, 8}, generator, at::kDouble).requires_grad_(true);
    input = at::randn({4, 8}, generator, at::kDouble).requires_grad_(true);
    std::optional<SavedTensors::Collect> collect;
    if (collects) collect.emplace(saved);
    const at::Tensor between = at::tanh(kernels::linear(input, weight, {}));
    output = at::softmax(kernels::linear(between, weight, {}), -1);
  }
  at::Tensor gradient() {
    at::Tensor upstream = at::ones_like(output);
    upstream.select(1, 0).mul_(3);
    torch::autograd::backward({output}, {upstream});
    return weight.grad();
  }
};

TEST_CASE("what was in host memory gives the same gradients", "[engine]") {
  Graph plain(false);
  const at::Tensor expected = plain.gradient();
  for (const double delay_ms : {0.0, 0.1}) {
    const auto device = make_device({.delay_ms_max = delay_ms});
    Graph graph;
    Bytes away, back;
    const auto run = [&](auto work) {
      const auto launched = device->launch(
          [work]() -> Status {
            work();
            return Done{};
          },
          [] {});
      device->wait();
      REQUIRE(launched->status().ok());
    };
    run([&] { away = graph.saved.offload(*device); });
    // The rows between the products, once, though tanh has them and the second product. The
    // output is whose it is, and so are weight and input.
    CHECK(away == Bytes{4 * 8 * 8});
    run([&] { back = graph.saved.fetch(*device); });
    CHECK(back == away);
    CHECK(at::equal(graph.gradient(), expected));
    CHECK(at::equal(graph.input.grad(), plain.input.grad()));
  }
}

TEST_CASE("a backward before what it needs is back is an error", "[engine][errors]") {
  const auto device = make_device({});
  Graph graph;
  graph.saved.offload(*device);
  CHECK_THROWS_AS(graph.gradient(), c10::Error);
}

TEST_CASE("there is nothing to offload twice, or behind a backward", "[engine]") {
  const auto device = make_device({});
  Graph graph;
  CHECK(graph.saved.offload(*device) > Bytes{});
  CHECK(graph.saved.offload(*device) == Bytes{});
  CHECK(graph.saved.fetch(*device) > Bytes{});
  CHECK(graph.saved.fetch(*device) == Bytes{});
  graph.gradient();
  CHECK(graph.saved.offload(*device) == Bytes{});
}

/// An accelerator of tensors without contents.
class MetaDevice final : public Device {
 public:
  c10::Device place() const override { return c10::kMeta; }
  std::shared_ptr<const Launch> launch(Work, std::function<void()>) override { return nullptr; }
  at::Tensor host_buffer(at::IntArrayRef shape, at::ScalarType dtype) override {
    return at::empty(shape, dtype);
  }
  at::Tensor to_host(at::Tensor tensor) override {
    return host_buffer(tensor.sizes(), tensor.scalar_type());
  }
  void write_to_host(at::Tensor, at::Tensor) override {}
  at::Tensor to_device(at::Tensor buffer) override { return buffer.to(place()); }
  void drop() override {}
  void wait() override {}
};

TEST_CASE("a number of the host beside tensors of an accelerator stays where it is", "[engine]") {
  MetaDevice device;
  SavedTensors saved;
  at::Tensor output;
  {
    const SavedTensors::Collect collect(saved);
    const at::Tensor input =
        at::empty({4, 8}, at::TensorOptions(at::kDouble).device(device.place()));
    output = at::mul(at::tanh(input.requires_grad_(true)), at::scalar_tensor(3, at::kDouble));
  }
  CHECK(saved.offload(device) == Bytes{4 * 8 * 8});
  CHECK(saved.fetch(device) == Bytes{4 * 8 * 8});
}

TEST_CASE("memory that somebody else holds stays where it is", "[engine]") {
  const auto device = make_device({});
  auto generator = at::detail::createCPUGenerator(7);
  const at::Tensor weight = at::randn({8, 8}, generator, at::kDouble).requires_grad_(true);
  SavedTensors first, second;
  at::Tensor shared, sums[2];
  {
    const SavedTensors::Collect collect(first);
    shared = at::tanh(at::mm(weight, weight));
    sums[0] = at::mm(shared, weight);
  }
  {
    const SavedTensors::Collect collect(second);
    sums[1] = at::mm(shared, weight);
  }
  // Both graphs have it, and so has this test.
  CHECK(first.offload(*device) == Bytes{});
  shared.reset();
  CHECK(first.offload(*device) == Bytes{});
  CHECK(second.offload(*device) == Bytes{});
  sums[1].reset();
  CHECK(first.offload(*device) == Bytes{8 * 8 * 8});
}

}  // namespace
}  // namespace troupe::engine
