#include "tests/torch_catch.hpp"

#include "engine/execution/parameter_shard.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/execution/device.hpp"
#include "models/own_update.hpp"

namespace troupe::engine {
namespace {

/// Two parameters of one layer: a matrix and a vector.
std::vector<models::Parameter> two_parameters(at::ScalarType type) {
  std::vector<models::Parameter> parameters{{"llm.a.weight", at::full({2, 2}, 1.0, type)},
                                            {"llm.a.bias", at::full({3}, 2.0, type)}};
  for (auto& parameter : parameters) parameter.value.requires_grad_(true);
  return parameters;
}

ParameterShard state_of(std::vector<models::Parameter>& parameters) {
  std::vector<models::Parameter*> pointers;
  for (auto& parameter : parameters) pointers.push_back(&parameter);
  return ParameterShard(std::move(pointers));
}

/// What a backward leaves where nothing is there yet.
void leave(models::Parameter& parameter, double value) {
  auto& gradient = parameter.value.mutable_grad();
  const auto more = at::full(parameter.value.sizes(), value, parameter.value.options()).detach();
  if (gradient.defined())
    gradient.add_(more);
  else
    gradient = more.clone();
}

TEST_CASE("gradients of a group lie behind one another, in its parameters' order", "[engine]") {
  auto parameters = two_parameters(at::kDouble);
  auto state = state_of(parameters);
  CHECK(state.elements() == 7);
  leave(parameters[1], 5);
  CHECK(at::equal(state.gradients(), at::tensor({0., 0., 0., 0., 5., 5., 5.})));
  leave(parameters[0], 1);
  leave(parameters[0], 2);
  CHECK(at::equal(state.gradients(), at::tensor({3., 3., 3., 3., 5., 5., 5.})));
  std::map<std::string, at::Tensor> copies;
  state.copy_gradients(copies);
  CHECK(at::equal(copies.at("llm.a.bias"), at::tensor({5., 5., 5.})));
  state.zero();
  CHECK(at::equal(state.gradients(), at::zeros({7}, at::kDouble)));
}

TEST_CASE("bf16 gradients of all parts add up in fp32", "[engine]") {
  auto parameters = two_parameters(at::kBFloat16);
  auto state = state_of(parameters);
  CHECK(state.gradients().scalar_type() == at::kFloat);
  // 256 + 1 is not a bf16 number (it has eight bits), but two parts keep it in fp32.
  leave(parameters[1], 256);
  state.harvest();
  leave(parameters[1], 1);
  state.harvest();
  CHECK(at::equal(state.gradients(), at::tensor({0.F, 0.F, 0.F, 0.F, 257.F, 257.F, 257.F})));
  CHECK_FALSE(parameters[1].value.grad().defined());
}

TEST_CASE("an update of moments that came is that of moments that are there", "[engine]") {
  const auto device = make_device({});
  for (const auto type : {at::kDouble, at::kBFloat16}) {
    auto parameters = two_parameters(type), others = two_parameters(type);
    auto here = state_of(parameters), away = state_of(others);
    // Where they lie stays the same.
    const state::AdamWState home = away.optimizers()[0];
    for (std::int64_t step = 1; step <= 2; ++step) {
      for (ParameterShard* state : {&here, &away}) state->gradients().fill_(step == 1 ? 4 : -1);
      here.update({}, step, 0.5, 1);
      CHECK(away.fetch_state(*device) == away.optimizer_bytes());
      CHECK(away.has_fetched_state());
      const auto before = home.exp_avg.clone();
      away.update({}, step, 0.5, 1);
      CHECK(at::equal(home.exp_avg, before));  // Until they go back.
      CHECK(away.offload_state(*device) == away.optimizer_bytes());
      CHECK_FALSE(away.has_fetched_state());
      CHECK(away.hash() == here.hash());
      CHECK(away.optimizers()[0].exp_avg.is_same(home.exp_avg));
      for (std::size_t p = 0; p < 2; ++p) {
        CHECK(at::equal(away.optimizers()[p].exp_avg, here.optimizers()[p].exp_avg));
        CHECK(at::equal(away.optimizers()[p].exp_avg_sq, here.optimizers()[p].exp_avg_sq));
        if (type == at::kBFloat16)
          CHECK(at::equal(away.optimizers()[p].master, here.optimizers()[p].master));
      }
    }
    // Seven elements; two moments, in bf16 with a master, of 4 bytes each.
    CHECK(away.optimizer_bytes() == Bytes{7 * (type == at::kDouble ? 16 : 12)});
  }
}

/// A host that counts what comes and what goes.
class CountingDevice final : public Device {
 public:
  int came = 0, went = 0;

  std::shared_ptr<const Launch> launch(Work work, std::function<void()> on_done) override {
    return host_->launch(std::move(work), std::move(on_done));
  }
  at::Tensor host_buffer(at::IntArrayRef shape, at::ScalarType dtype) override {
    return host_->host_buffer(shape, dtype);
  }
  at::Tensor to_host(at::Tensor tensor) override { return host_->to_host(std::move(tensor)); }
  void write_to_host(at::Tensor tensor, at::Tensor host) override {
    ++went;
    host_->write_to_host(std::move(tensor), std::move(host));
  }
  at::Tensor to_device(at::Tensor buffer) override {
    ++came;
    return host_->to_device(std::move(buffer));
  }
  void drop() override { host_->drop(); }
  void wait() override { host_->wait(); }

 private:
  std::unique_ptr<Device> host_ = make_device({});
};

/// Both means of a parameter, as they lie in a store's buffer from a place on.
state::AdamWState means_at(const at::Tensor& buffer, std::int64_t begin, const at::Tensor& like) {
  const at::Tensor first = buffer.narrow(0, begin, like.numel());
  const at::Tensor second = buffer.narrow(0, begin + like.numel(), like.numel());
  return {{}, first.view(like.sizes()), second.view(like.sizes())};
}

TEST_CASE("moments of a layer come and go in one copy, and take nobody else along", "[engine]") {
  for (const bool strangers : {false, true}) {
    CAPTURE(strangers);
    // The matrix from 0 on, the vector at the next line of 32 numbers, or the one behind that,
    // where another group has what lies between.
    auto parameters = two_parameters(at::kDouble), others = two_parameters(at::kDouble);
    const at::Tensor buffer = at::zeros({96}, at::kDouble);
    std::vector<models::Parameter*> pointers;
    for (auto& parameter : parameters) pointers.push_back(&parameter);
    ParameterShard away(pointers, {means_at(buffer, 0, parameters[0].value),
                                   means_at(buffer, strangers ? 64 : 32, parameters[1].value)});
    auto here = state_of(others);
    CountingDevice device;
    for (std::int64_t step = 1; step <= 2; ++step) {
      for (ParameterShard* state : {&here, &away}) state->gradients().fill_(4);
      CHECK(away.fetch_state(device) == Bytes{7 * 16});
      if (strangers) buffer.narrow(0, 32, 5).fill_(step);  // Meanwhile they are updated.
      here.update({}, step, 0.5, 1);
      away.update({}, step, 0.5, 1);
      CHECK(away.offload_state(device) == Bytes{7 * 16});
      CHECK(away.hash() == here.hash());
      for (std::size_t p = 0; p < 2; ++p) {
        CHECK(at::equal(away.optimizers()[p].exp_avg, here.optimizers()[p].exp_avg));
        CHECK(at::equal(away.optimizers()[p].exp_avg_sq, here.optimizers()[p].exp_avg_sq));
      }
      if (strangers) CHECK(at::equal(buffer.narrow(0, 32, 5), at::full({5}, step, at::kDouble)));
    }
    CHECK(device.came == 2 * (strangers ? 2 : 1));
    CHECK(device.went == device.came);
  }
}

TEST_CASE("moments come once and go once", "[engine][errors]") {
  const auto device = make_device({});
  auto parameters = two_parameters(at::kDouble);
  auto state = state_of(parameters);
  CHECK_THROWS_AS(state.offload_state(*device), c10::Error);
  static_cast<void>(state.fetch_state(*device));
  CHECK_THROWS_AS(state.fetch_state(*device), c10::Error);
  const auto copy = state.optimizers()[0].exp_avg;
  copy.fill_(7);
  state.forget_fetched_state();  // They go nowhere.
  CHECK_FALSE(state.has_fetched_state());
  CHECK(state.optimizers()[0].exp_avg.count_nonzero().item<std::int64_t>() == 0);
  state.forget_fetched_state();
  CHECK(state.optimizers().size() == 2);
}

TEST_CASE("a parameter with a rule of its own is moved by that alone, and not clipped",
          "[engine]") {
  for (const auto type : {at::kDouble, at::kBFloat16}) {
    auto parameters = two_parameters(type), plain = two_parameters(type);
    parameters[1].update = [](const models::ParameterUpdate& update) {
      CHECK(update.name == "llm.a.bias");
      CHECK(update.step == update.first[0].item<double>() + 1);
      CHECK(update.learning_rate == 0.5);
      CHECK(update.value.scalar_type() == update.sum.scalar_type());
      update.value.add_(update.sum, 1.0 / 1024);
      update.first.add_(1);
    };
    auto state = state_of(parameters), all = state_of(plain);
    CHECK(all.own_updates().empty());
    CHECK((state.own_updates() == std::vector<IndexRange>{{4, 7}}));
    for (std::int64_t step = 1; step <= 2; ++step) {
      for (ParameterShard* each : {&state, &all}) {
        each->gradients().fill_(4);
        each->update({}, step, 0.5, 0.25);
      }
      CHECK(state.gradients().count_nonzero().item<std::int64_t>() == 0);
    }
    CHECK(at::equal(parameters[0].value, plain[0].value));
    // 2 + 2 * 4 / 1024, which bf16 does not know: its master does.
    const at::Tensor& master = state.optimizers()[1].master;
    const at::Tensor exact = master.defined() ? master : parameters[1].value.detach();
    CHECK(at::equal(exact, at::full({3}, 2.0078125, exact.options())));
    CHECK(at::equal(parameters[1].value, exact.to(type)));
    CHECK(state.optimizers()[1].exp_avg_sq.count_nonzero().item<std::int64_t>() == 0);
  }
}

TEST_CASE("holders that differ in what they keep between steps alone have other hashes",
          "[engine]") {
  for (const auto type : {at::kDouble, at::kBFloat16}) {
    auto parameters = two_parameters(type), others = two_parameters(type);
    auto here = state_of(parameters), there = state_of(others);
    CHECK(here.hash() == there.hash());
    const state::AdamWState& own = there.optimizers()[1];
    CHECK(own.master.defined() == (type == at::kBFloat16));
    for (const at::Tensor& kept : {own.master, own.exp_avg, own.exp_avg_sq}) {
      if (!kept.defined()) continue;
      const at::Tensor before = kept.clone();
      kept.add_(1);
      CHECK(here.hash() != there.hash());
      kept.copy_(before);
      CHECK(here.hash() == there.hash());
    }
  }
}

TEST_CASE("an update leaves no gradient behind, also where it was the sum of holders", "[engine]") {
  for (const auto type : {at::kDouble, at::kBFloat16}) {
    auto parameters = two_parameters(type);
    auto state = state_of(parameters);
    const auto before = state.hash();
    state.gradients().fill_(4);
    state.update({}, 1, 0.5, 1);
    // AdamW's first step moves by the rate, whatever the gradient's size: 2 - 0.5 for the vector.
    CHECK(parameters[1].value.detach().sub(1.5).abs().max().item<double>() < 1e-6);
    CHECK(state.hash() != before);
    CHECK(state.gradients().count_nonzero().item<std::int64_t>() == 0);
    state.zero();
    leave(parameters[0], 1);
    state.harvest();
    CHECK(state.gradients().sum().item<double>() == 4);
  }
}

}  // namespace
}  // namespace troupe::engine
