// Operators on rows on a GPU beside the same on a CPU.

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/activations.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/norms.hpp"
#include "kernels/rotary.hpp"
#include "kernels/token_embedding.hpp"
#include "tests/kernels/a_gpu.hpp"
#include "tests/kernels/gradient_check.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe;
using namespace troupe::kernels;

namespace {

using Tensors = std::vector<at::Tensor>;
using Operator = std::function<at::Tensor(const Tensors&)>;

// The output and the gradient of each input, in fp64 on the host.
Tensors results(const Tensors& inputs, at::Device device, at::ScalarType type,
                const Operator& run) {
  Tensors leaves;
  for (const auto& input : inputs)
    leaves.push_back(input.detach().to(device, type).set_requires_grad(true));
  const auto out = run(leaves);
  out.backward(values(out.sizes().vec(), 9).to(out.options()));
  Tensors found{out.detach()};
  for (const auto& leaf : leaves) found.push_back(leaf.grad());
  for (auto& tensor : found) tensor = tensor.cpu().to(at::kDouble);
  return found;
}

// Beside fp64 on the host, from values that the type holds.
void compare(const Tensors& inputs, at::Device device, const Operator& run) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    Tensors rounded;
    for (const auto& input : inputs) rounded.push_back(input.to(type).to(at::kDouble));
    const auto wanted = results(rounded, at::kCPU, at::kDouble, run);
    const auto found = results(inputs, device, type, run);
    const auto again = results(inputs, device, type, run);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      CAPTURE(type, i, inputs[0].sizes().vec());
      const double most = type == at::kDouble ? 1e-12 : type == at::kFloat ? 4e-6 : 1e-2;
      CHECK(relative_difference(found[i], wanted[i]) < most);
      // The small ones on their own: a large one beside them would hide them.
      const auto size = wanted[i].abs();
      const auto small = size.lt(size.max().mul(0.1));
      CHECK(relative_difference(found[i].mul(small), wanted[i].mul(small)) < 10 * most);
      CHECK(found[i].equal(again[i]));
    }
  }
}

}  // namespace

TEST_CASE("RMSNorm on a GPU is that of a CPU", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  for (const std::int64_t width : {2, 7, 96, 1000, 2048, 12288})
    for (const std::int64_t rows : {1, 3, 700}) {
      if (rows * width > 3'000'000) continue;
      compare({values({rows, width}, 1), values({width}, 2)}, device,
              [](const Tensors& x) { return rms_norm(x[0], x[1], 1e-5); });
    }
}

TEST_CASE("SwiGLU on a GPU is that of a CPU", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  for (const std::int64_t width : {1, 7, 96, 1000})
    compare({values({33, width}, 1).mul(8), values({33, width}, 2)}, device,
            [](const Tensors& x) { return swiglu(x[0], x[1]); });
}

TEST_CASE("LayerNorm on a GPU is that of a CPU", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  const auto norm = [](const Tensors& x) { return layer_norm(x[0], x[1], x[2], 1e-5); };
  for (const std::int64_t width : {2, 7, 96, 1000, 1280, 5120})
    for (const std::int64_t rows : {1, 3, 700}) {
      if (rows * width > 3'000'000) continue;
      compare({values({rows, width}, 1), values({width}, 2), values({width}, 3)}, device, norm);
    }
  // Rows far from zero: what is left of them is small. bf16 would not hold it.
  const auto far = values({5, 96}, 1).mul(1e-2).add(50);
  const auto on = [&](at::ScalarType type) {
    return norm({far.to(type).to(device), values({96}, 2).to(type).to(device),
                 values({96}, 3).to(type).to(device)})
        .cpu()
        .to(at::kDouble);
  };
  const auto wanted = norm({far.to(at::kFloat).to(at::kDouble), values({96}, 2), values({96}, 3)});
  CHECK(relative_difference(on(at::kFloat), wanted) < 1e-3);
}

TEST_CASE("GELU on a GPU is that of a CPU, far below zero too", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  for (const std::int64_t width : {1, 7, 96, 1000}) {
    const Tensors inputs{values({33, width}, 1).mul(6)};
    compare(inputs, device, [](const Tensors& x) { return gelu(x[0]); });
    compare(inputs, device, [](const Tensors& x) { return quick_gelu(x[0]); });
  }
}

TEST_CASE("rotations on a GPU are those of a CPU", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  const std::vector<std::int64_t> positions{0, 1, 2, 3, 0, 1, 5000, 7};
  for (const std::int64_t dim : {2, 20, 128})
    compare({values({8, 6, dim}, 1)}, device, [&](const Tensors& x) {
      const auto table = text_rotary(positions, dim, 1e4, x[0].scalar_type(), x[0].device());
      return rotate(x[0].narrow(1, 1, 3), table);  // Strides of a part.
    });
}

TEST_CASE("embeddings on a GPU are those of a CPU, with the same bits each time",
          "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  // LibTorch adds up gradients of up to 3072 tokens in one way, of more in another: tokens occur
  // many times, as in text, so that the order of their sums shows.
  for (const std::int64_t tokens : {1, 700, 5000})
    for (const std::int64_t vocabulary : {300, 1000}) {
      const auto index = at::arange(tokens, at::kLong);
      const auto ids = index.mul(index).remainder(vocabulary);
      const auto weight = values({vocabulary, 96}, 1);
      compare({weight}, device, [&](const Tensors& x) { return embed_tokens(ids, x[0]); });
      const auto places = at::arange(tokens / 3, at::kLong).mul(2);  // Every second one.
      if (places.numel() == 0) continue;
      compare({weight, values({places.numel(), 96}, 2)}, device,
              [&](const Tensors& x) { return embed_tokens(ids, x[0], places, x[1]); });
    }
}

TEST_CASE("cross entropy on a GPU is that of a CPU", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  const std::vector<std::int64_t> counts{2, 0, 3};
  for (const std::int64_t width : {3, 320, 4001, 128256}) {
    const auto targets = at::arange(5, at::kLong).mul(7919).remainder(width);
    compare({values({5, width}, 1).mul(6)}, device, [&](const Tensors& x) {
      return cross_entropy_sums(x[0], targets.to(x[0].device()), counts);
    });
  }
}

TEST_CASE("cross entropy on a GPU tells what is no number, and passes over what cannot be",
          "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  const double infinity = std::numeric_limits<double>::infinity();
  const auto sum = [&](const at::Tensor& logits, std::int64_t target) {
    const auto targets = at::full({1}, target, at::kLong).to(device);
    return cross_entropy_sums(logits.to(device), targets, {1}).cpu().to(at::kDouble).item<double>();
  };
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    auto logits = at::zeros({1, 4096}, type);
    logits.narrow(1, 0, 8).fill_(-infinity);  // All that one thread reads first.
    CHECK(std::abs(sum(logits, 100) - std::log(4088.0)) < 1e-4);
    CHECK(sum(logits, 0) == infinity);
    CHECK(std::isnan(sum(logits, 4096)));  // No such target.
    CHECK(std::isnan(sum(logits, -1)));
    logits[0][2000] = std::numeric_limits<double>::quiet_NaN();
    CHECK(std::isnan(sum(logits, 100)));
    CHECK(std::isnan(sum(at::full({1, 4096}, -infinity, type), 100)));
  }
}

TEST_CASE("operators on a GPU take no rows, and inputs that do not train", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  const auto on = at::TensorOptions(at::kFloat).device(device);
  const auto weight = at::ones({96}, on).set_requires_grad(true);
  const auto out = rms_norm(at::zeros({0, 96}, on), weight, 1e-5);
  CHECK(out.size(0) == 0);
  out.sum().backward();
  CHECK(weight.grad().abs().sum().item<double>() == 0);
  CHECK(swiglu(at::zeros({0, 96}, on), at::zeros({0, 96}, on)).size(0) == 0);
  const auto bias = at::ones({96}, on).set_requires_grad(true);
  layer_norm(at::zeros({0, 96}, on), weight, bias, 1e-5).sum().backward();
  CHECK(bias.grad().abs().sum().item<double>() == 0);
  CHECK(gelu(at::zeros({0, 96}, on)).size(0) == 0);
  layer_norm(at::ones({3, 96}, on), weight.detach(), bias, 1e-5).sum().backward();
  CHECK(bias.grad().equal(at::full({96}, 3, on)));  // Of three rows, one for each.
  const auto up = at::ones({3, 96}, on).set_requires_grad(true);
  swiglu(at::ones({3, 96}, on), up).sum().backward();
  CHECK(up.grad().defined());
  // Another type of weight: LibTorch's operators.
  const auto mixed = rms_norm(at::ones({2, 96}, on.dtype(at::kBFloat16)), weight.detach(), 1e-5);
  CHECK(std::abs(mixed.to(at::kFloat).mean().item<double>() - 1) < 1e-2);
}
