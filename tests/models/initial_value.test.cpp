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

TEST_CASE("initial values are those of every release", "[models]") {
  // By Philox, Box-Muller and the key as initial_value.cpp has them, in Python's own arithmetic.
  // Checkpoints, references and runs of other releases begin with these.
  const auto values = normal(1, "a", 100001);
  const std::pair<std::int64_t, double> expected[] = {
      {0, 0.5728822796779188},
      {1, 0.29487970086421594},
      {2, 3.431748936955708},
      {70001, 1.5954625060752667},
  };
  for (const auto& [element, value] : expected) {
    CAPTURE(element);
    CHECK(std::abs(values[element].item<double>() - value) < 1e-14);
  }
}

TEST_CASE("threads and types change no bit of an initial value", "[models][property]") {
  for (const std::int64_t count : {1, 2, 65535, 65536, 65537, 300001}) {
    const auto exact = normal(3, "w", count);
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16})
      for (const int threads : {1, 2, 3, 8}) {
        CAPTURE(count, threads);
        const auto drawn = initial_value(3, "w", {count}, Initial::normal, 2, {dtype, threads});
        CHECK(drawn.scalar_type() == dtype);
        CHECK(drawn.equal(exact.to(dtype)));
      }
  }
  const auto positions = initial_value(3, "p", {5, 4}, Initial::sinusoid, 0);
  CHECK(initial_value(3, "p", {5, 4}, Initial::sinusoid, 0, {at::kFloat, 8})
            .equal(positions.to(at::kFloat)));
}

TEST_CASE("a layer has values of the parameters that are asked for", "[models]") {
  auto all = small_model();
  all[4].config.edit<LlmConfig>().tie_word_embeddings = true;
  LayerOptions options{.dtype = at::kDouble, .seed = 3};
  const auto last = static_cast<int>(make_chain(all[4], all).layers.size()) - 1;
  const auto whole = make_layer(all[4], all, last, options).value();
  options.only = {whole->parameters()[0].name};  // The norm without the embedding's matrix.
  const auto part = make_layer(all[4], all, last, options).value();
  CHECK(part->parameters()[0].value.equal(whole->parameters()[0].value));
  CHECK(part->parameters()[1].name == whole->parameters()[1].name);
  CHECK_FALSE(part->parameters()[1].value.defined());
  options.only.reset();
  options.draws = false;
  const auto empty = make_layer(all[4], all, last, options).value();
  for (std::size_t i = 0; i < empty->parameters().size(); ++i) {
    const auto& value = empty->parameters()[i].value;
    CHECK(value.sizes() == whole->parameters()[i].value.sizes());
    CHECK(value.requires_grad());
  }
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
