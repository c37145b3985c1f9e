#include "kernels/linear.hpp"

#include "kernels/deferred_gradients.hpp"
#include "tests/kernels/gradient_check.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe;
using namespace troupe::kernels;

namespace {

struct Network {
  at::Tensor input, weight1, bias1, weight2;

  explicit Network(at::ScalarType dtype)
      : input(values({6, 5}, 1).to(dtype).set_requires_grad(true)),
        weight1(values({4, 5}, 2).to(dtype).set_requires_grad(true)),
        bias1(values({4}, 3).to(dtype).set_requires_grad(true)),
        weight2(values({3, 4}, 4).to(dtype).set_requires_grad(true)) {}

  // weight2 is used twice, so that sums into one gradient are covered.
  at::Tensor loss() const {
    const auto hidden = kernels::linear(input, weight1, bias1).tanh();
    const auto first = kernels::linear(hidden, weight2),
               second = kernels::linear(hidden.mul(2), weight2);
    return first.mul(second).sum();
  }
  std::vector<at::Tensor> weights() const { return {weight1, bias1, weight2}; }
};

}  // namespace

TEST_CASE("linear is rows times weight transposed plus bias", "[kernels]") {
  // By hand: [1 2] x [[1 0] [3 4]]^T + [10 20] = [1, 3 + 8] + [10 20] = [11 31].
  const auto rows = at::arange(1, 3, at::kDouble).view({1, 2});
  const auto weight = at::arange(4, at::kDouble).view({2, 2}).mul(1.0).clone();
  weight[0][0] = 1, weight[0][1] = 0, weight[1][0] = 3, weight[1][1] = 4;
  const auto bias = at::arange(10, 30, 10, at::kDouble);
  const auto out = kernels::linear(rows, weight, bias);
  CHECK(out[0][0].item<double>() == 11);
  CHECK(out[0][1].item<double>() == 31);
}

TEST_CASE("linear has the derivatives of its definition", "[kernels][property]") {
  const auto rows = leaf({3, 8}, 1), weight = leaf({2, 2, 4}, 2), bias = leaf({2}, 3);
  CHECK(gradient_error([&] { return kernels::linear(rows, weight, bias); }, {rows, weight, bias}) <
        1e-8);
}

TEST_CASE("deferred weight gradients have the bits of a plain backward", "[kernels]") {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const Network plain(dtype), split(dtype);
    const auto queue = std::make_shared<DeferredGradients>();
    // Two passes: gradients are added to those that are there.
    for (int pass = 0; pass < 2; ++pass) {
      plain.loss().backward();
      {
        const DeferWeightGradients guard(queue);
        split.loss().backward();
      }
      CHECK(split.input.grad().equal(plain.input.grad()));
      if (pass == 0)
        for (const auto& weight : split.weights()) CHECK_FALSE(weight.grad().defined());
      CHECK(queue->size() == 3);
      queue->run();
      CHECK(queue->empty());
      for (std::size_t i = 0; i < 3; ++i)
        CHECK(split.weights()[i].grad().equal(plain.weights()[i].grad()));
    }
  }
}

TEST_CASE("the innermost guard takes the weight gradients", "[kernels]") {
  const auto outer = std::make_shared<DeferredGradients>();
  const auto inner = std::make_shared<DeferredGradients>();
  const Network network(at::kFloat);
  CHECK(current_deferred_gradients() == nullptr);
  const DeferWeightGradients outer_guard(outer);
  {
    const DeferWeightGradients inner_guard(inner);
    network.loss().backward();
  }
  CHECK(current_deferred_gradients() == outer.get());
  CHECK(outer->empty());
  CHECK(inner->size() == 3);
}

TEST_CASE("frozen weights leave nothing behind", "[kernels]") {
  const auto queue = std::make_shared<DeferredGradients>();
  const auto rows = leaf({3, 4}), weight = values({2, 4}, 2);
  const DeferWeightGradients guard(queue);
  kernels::linear(rows, weight).sum().backward();
  CHECK(queue->empty());
  CHECK(rows.grad().defined());
  CHECK_FALSE(kernels::linear(values({3, 4}), weight).requires_grad());
}
