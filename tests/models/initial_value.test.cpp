#include "models/initial_value.hpp"
#include "models/llama/family.hpp"
#include "tests/models/chain.hpp"
#include "tests/torch_catch.hpp"

#include <ATen/ops/cat.h>

#include <cmath>

// After LibTorch's headers, some of which use the macros that this one removes.

using namespace troupe;
using namespace troupe::models;

namespace {

at::Tensor normal(std::uint64_t seed, const std::string& name, std::int64_t count) {
  return initial_value(seed, name, {count}, Initial::normal, 2);
}

}  // namespace

TEST_CASE("initial values depend on seed and name alone", "[models]") {
  CHECK(normal(1, "a", 100).equal(normal(1, "a", 100)));
  CHECK_FALSE(normal(1, "a", 100).equal(normal(2, "a", 100)));
  CHECK_FALSE(normal(1, "a", 100).equal(normal(1, "b", 100)));
  // An element depends on its index, not on the size of the tensor.
  CHECK(normal(1, "a", 101).narrow(0, 0, 100).equal(normal(1, "a", 100)));
}

TEST_CASE("initial values are normal with the given deviation", "[models][property]") {
  // 200,000 values: the mean's standard error is 2 / 447 = 0.0045, the deviation's 0.0032.
  const auto values = normal(5, "x", 200000);
  CHECK(std::abs(values.mean().item<double>()) < 0.02);
  CHECK(std::abs(values.std().item<double>() - 2) < 0.015);
  const auto within_one = values.abs().lt(2).to(at::kDouble).mean().item<double>();
  CHECK(std::abs(within_one - 0.6827) < 0.005);
  // Neighbours, which come from one draw of the generator, do not correlate.
  const auto pairs = values.view({-1, 2});
  const auto product = pairs.select(1, 0).mul(pairs.select(1, 1)).mean().item<double>();
  CHECK(std::abs(product) < 0.06);
}

TEST_CASE("audio positions are sines and cosines", "[models]") {
  // By hand, 4 channels: frequencies 1 and 1/10000; position 3: sin 3, sin 0.0003, cos 3, cos
  // 0.0003.
  const auto row = initial_value(1, "any", {5, 4}, Initial::sinusoid, 0)[3];
  const double expected[] = {std::sin(3.0), std::sin(3e-4), std::cos(3.0), std::cos(3e-4)};
  for (int i = 0; i < 4; ++i) CHECK(std::abs(row[i].item<double>() - expected[i]) < 1e-15);
}

TEST_CASE("every dtype starts from the same values", "[models]") {
  const auto all = small_model();
  const auto exact = make_chain(all[4], all, {.dtype = at::kDouble, .device = at::kCPU, .seed = 3});
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto narrow = make_chain(all[4], all, {.dtype = dtype, .device = at::kCPU, .seed = 3});
    for (std::size_t i = 0; i < exact.parameters().size(); ++i)
      CHECK(narrow.parameters()[i].value.equal(exact.parameters()[i].value.to(dtype)));
  }
}

TEST_CASE("norms start at one, biases at zero", "[models]") {
  const auto all = small_model();
  for (const auto& parameter : make_chain(all[0], all).parameters()) {
    const bool is_bias = parameter.name.ends_with(".bias");
    const bool is_scale = !is_bias && parameter.value.dim() == 1;
    if (is_bias) CHECK(parameter.value.abs().max().item<double>() == 0);
    if (is_scale) CHECK(parameter.value.eq(1).all().item<bool>());
    if (!is_bias && !is_scale) CHECK(parameter.value.std().item<double>() > 0.2);
  }
}

TEST_CASE("a tied head starts as its embedding, with its own tensor", "[models]") {
  auto all = small_model();
  all[4].config.edit<LlmConfig>().tie_word_embeddings = true;
  const auto chain = make_chain(all[4], all);
  const auto& embedding = chain.layers.front()->parameters()[0];
  const auto& head = chain.layers.back()->parameters()[1];
  CHECK(head.name == embedding.name);
  CHECK(head.tied_use);
  CHECK_FALSE(embedding.tied_use);
  CHECK(head.value.equal(embedding.value));
  CHECK_FALSE(head.value.is_same(embedding.value));
}
