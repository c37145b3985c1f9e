#include "tests/torch_catch.hpp"

#include "runtime/state/adamw.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "runtime/state/compare.hpp"
#include "runtime/state/safetensors.hpp"

using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace troupe::state {
namespace {

at::Tensor random(std::uint64_t seed, at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(sizes, generator, at::kDouble).to(type);
}

TEST_CASE("the first step moves by the learning rate against the sign", "[state]") {
  // Step 1: m = 0.1 g, v = 0.05 g^2; corrected m = g, v = g^2; g / (|g| + eps) = sign(g) nearly.
  // Vector, lr 0.1: 1 - 0.1 * 2/(2 + 1e-8) and -3 - 0.1 * -4/(4 + 1e-8).
  auto parameter = at::tensor({1.0, -3.0}, at::kDouble);
  auto state = make_adamw_state(parameter);
  adamw_step(parameter, state, at::tensor({2.0, -4.0}, at::kDouble), {}, 0.1, 1, 1);
  CHECK_THAT(parameter[0].item<double>(), WithinRel(1 - 0.1 * 2 / (2 + 1e-8), 1e-14));
  CHECK_THAT(parameter[1].item<double>(), WithinRel(-3 + 0.1 * 4 / (4 + 1e-8), 1e-14));
  CHECK_THAT(state.exp_avg[0].item<double>(), WithinRel(0.2, 1e-14));
  CHECK_THAT(state.exp_avg_sq[1].item<double>(), WithinRel(0.8, 1e-14));
}

TEST_CASE("a second step by hand, with decay and clipping", "[state]") {
  // One element of a matrix; lr 0.5, decay 0.1, betas 0.5 and 0.5, eps 1; gradients 4 and 8 clipped
  // by 1/2 to 2 and 4.
  // Step 1: w = 10 * 0.95 = 9.5; m = 1, v = 2; m^ = 2, v^ = 4: 9.5 - 0.5 * 2/(2 + 1) = 9.1666...
  // Step 2: w * 0.95; m = 2.5, v = 9; m^ = 2.5/0.75, v^ = 12.
  auto parameter = at::full({1, 1}, 10.0, at::kDouble);
  auto state = make_adamw_state(parameter);
  const AdamWOptions options{.beta1 = 0.5, .beta2 = 0.5, .eps = 1, .weight_decay = 0.1};
  adamw_step(parameter, state, at::full({1, 1}, 4.0, at::kDouble), options, 0.5, 0.5, 1);
  const double first = 9.5 - 0.5 * 2.0 / 3.0;
  CHECK_THAT(parameter.item<double>(), WithinRel(first, 1e-14));
  adamw_step(parameter, state, at::full({1, 1}, 8.0, at::kDouble), options, 0.5, 0.5, 2);
  const double second = first * 0.95 - 0.5 * (2.5 / 0.75) / (std::sqrt(12.0) + 1);
  CHECK_THAT(parameter.item<double>(), WithinRel(second, 1e-14));
}

TEST_CASE("AdamW agrees with PyTorch's over six steps", "[state]") {
  const auto golden = read_safetensors("tests/reference/state/adamw.safetensors");
  REQUIRE(golden.ok());
  const std::string type = GENERATE("f64", "f32");
  const std::string name = GENERATE("matrix", "vector");
  CAPTURE(type, name);
  const auto key = type + "." + name + ".";
  auto parameter = golden.value().at(key + "start").clone();
  auto state = make_adamw_state(parameter);
  const AdamWOptions options{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  for (int step = 1; step <= 6; ++step) {
    auto gradient = golden.value().at(key + "gradient." + std::to_string(step));
    if (step == 3) gradient = at::Tensor();  // PyTorch was given zeros there.
    adamw_step(parameter, state, gradient, options, 1e-2 / step, 1, step);
    const auto expected = golden.value().at(key + "value." + std::to_string(step));
    CHECK_THAT(tensor_difference(expected, parameter, DifferenceNorm::max),
               WithinAbs(0, type == "f64" ? 1e-15 : 3e-7));
  }
}

TEST_CASE("a step that zeroes its gradient is the same step", "[state]") {
  struct Types {
    at::ScalarType parameter, gradient;
  };
  const auto types = GENERATE(Types{at::kFloat, at::kFloat}, Types{at::kDouble, at::kDouble},
                              Types{at::kBFloat16, at::kFloat}, Types{at::kFloat, at::kDouble});
  CAPTURE(types.parameter, types.gradient);
  auto kept = random(1, {3, 11'003}).to(types.parameter);  // More than one pass, and an odd rest.
  auto zeroed = kept.clone();
  auto state_kept = make_adamw_state(kept), state_zeroed = make_adamw_state(zeroed);
  for (int step = 1; step <= 2; ++step) {
    const auto gradient = random(step + 1, {3, 11'003}).to(types.gradient);
    auto spent = gradient.clone();
    const auto before = gradient.clone();
    adamw_step(kept, state_kept, gradient, {}, 1e-2, 0.5, step);
    adamw_step(zeroed, state_zeroed, spent, {}, 1e-2, 0.5, step, GradientAfter::zero);
    CHECK(gradient.equal(before));
    CHECK(spent.count_nonzero().item<std::int64_t>() == 0);
    CHECK(zeroed.equal(kept));
  }
  at::Tensor none;
  adamw_step(zeroed, state_zeroed, none, {}, 1e-2, 1, 3, GradientAfter::zero);
  adamw_step(kept, state_kept, none, {}, 1e-2, 1, 3);
  CHECK(zeroed.equal(kept));
}

TEST_CASE("all parameters of a group step as each of them alone", "[state]") {
  const auto type = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  CAPTURE(type);
  const auto exact = type == at::kDouble ? at::kDouble : at::kFloat;
  // Gradients lie end to end in one flat tensor, so that most begin at no vector.
  const std::vector<std::vector<std::int64_t>> shapes{{3, 5}, {7}, {}, {0}, {2, 1, 11'003}};
  const auto flat = random(5, {15 + 7 + 1 + 0 + 22'006}, exact);
  std::vector<at::Tensor> values, alone, gradients;
  std::vector<AdamWState> states, states_alone;
  for (const auto& shape : shapes) {
    values.push_back(random(values.size() + 1, shape, type));
    alone.push_back(values.back().clone());
    states.push_back(make_adamw_state(values.back()));
    states_alone.push_back(make_adamw_state(alone.back()));
  }
  for (int step = 1; step <= 2; ++step) {
    const auto spent = flat.clone();
    gradients.clear();
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const auto gradient = spent.narrow(0, begin, values[i].numel()).view(shapes[i]);
      adamw_step(alone[i], states_alone[i], gradient.clone(), {.weight_decay = 0.2}, 1e-2, 0.5,
                 step);
      gradients.push_back(gradient);
      begin += values[i].numel();
    }
    adamw_steps(values, states, gradients, {.weight_decay = 0.2}, 1e-2, 0.5, step);
    CHECK(spent.count_nonzero().item<std::int64_t>() == 0);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      CAPTURE(step, i);
      CHECK(at::equal(values[i], alone[i]));
      CHECK(at::equal(states[i].exp_avg, states_alone[i].exp_avg));
      CHECK(at::equal(states[i].exp_avg_sq, states_alone[i].exp_avg_sq));
    }
  }
  adamw_steps({}, {}, {}, {}, 1e-2, 1, 1);
}

TEST_CASE("decay spares vectors and scalars", "[state]") {
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{}, {3}, {1, 3}, {2, 1, 3}}) {
    auto parameter = at::full(sizes, 2.0, at::kDouble);
    auto state = make_adamw_state(parameter);
    adamw_step(parameter, state, at::Tensor(), {.weight_decay = 0.25}, 0.5, 1, 1);
    const double expected = sizes.size() >= 2 ? 2 * (1 - 0.125) : 2;
    CHECK(parameter.min().item<double>() == expected);
    CHECK(parameter.max().item<double>() == expected);
  }
}

TEST_CASE("no gradient equals a gradient of zeros, and moments go on", "[state]") {
  auto a = random(1, {4, 5}), b = a.clone();
  auto state_a = make_adamw_state(a), state_b = make_adamw_state(b);
  for (int step = 1; step <= 3; ++step) {
    const auto gradient = step == 2 ? at::zeros_like(b) : random(9, {4, 5});
    const auto before = a.clone();
    adamw_step(a, state_a, step == 2 ? at::Tensor() : gradient, {}, 1e-2, 1, step);
    adamw_step(b, state_b, gradient, {}, 1e-2, 1, step);
    CHECK_FALSE(at::equal(a, before));
  }
  CHECK(at::equal(a, b));
  CHECK(at::equal(state_a.exp_avg_sq, state_b.exp_avg_sq));
}

TEST_CASE("a bf16 parameter follows its fp32 master", "[state]") {
  auto narrow = random(3, {8, 8}, at::kBFloat16);
  auto exact = narrow.to(at::kFloat);
  auto narrow_state = make_adamw_state(narrow), exact_state = make_adamw_state(exact);
  CHECK(narrow_state.exp_avg.scalar_type() == at::kFloat);
  for (int step = 1; step <= 20; ++step) {
    // So small that bf16 alone would never move.
    const auto gradient = random(static_cast<std::uint64_t>(step), {8, 8});
    adamw_step(narrow, narrow_state, gradient, {}, 1e-4, 1, step);
    adamw_step(exact, exact_state, gradient, {}, 1e-4, 1, step);
  }
  CHECK(at::equal(narrow_state.master, exact));
  CHECK(at::equal(narrow, exact.to(at::kBFloat16)));
}

TEST_CASE("parameters that require gradients are updated in place", "[state]") {
  auto parameter = random(2, {6});
  parameter.requires_grad_(true);
  const auto* before = parameter.const_data_ptr();
  auto state = make_adamw_state(parameter);
  adamw_step(parameter, state, random(4, {6}), {}, 1e-2, 1, 1);
  CHECK(parameter.const_data_ptr() == before);
  CHECK(parameter.is_leaf());
  CHECK(parameter.requires_grad());
  CHECK_FALSE(state.exp_avg.requires_grad());
}

TEST_CASE("threads and the place in a tensor change no bit", "[state][property]") {
  const auto seed = GENERATE(range(0u, 5u));
  const auto type = GENERATE(at::kFloat, at::kDouble);
  const std::int64_t count = 100'003;
  const auto start = random(seed, {count}, type);
  const auto gradient = random(seed + 100, {count}, type);
  const auto run = [&](int threads, std::int64_t skip) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    auto parameter = start.slice(0, skip).clone();
    auto state = make_adamw_state(parameter);
    for (int step = 1; step <= 3; ++step)
      adamw_step(parameter, state, gradient.slice(0, skip), {}, 1e-2, 0.7, step);
    at::set_num_threads(before);
    return parameter;
  };
  const auto one = run(1, 0);
  CHECK(at::equal(one, run(2, 0)));
  CHECK(at::equal(one.slice(0, 3), run(1, 3)));
}

}  // namespace
}  // namespace troupe::state
