// Attention on a GPU beside the dense reference on a CPU in fp64.

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <memory>
#include <vector>

#include "kernels/bitfield_attention.hpp"
#include "kernels/dense_attention.hpp"
#include "kernels/gpu_attention.hpp"
#include "kernels/packed_attention.hpp"
#include "tests/kernels/a_gpu.hpp"
#include "tests/kernels/masked_heads.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe;
using namespace troupe::kernels;

namespace {

// While alive, LibTorch takes deterministic kernels alone, as the engine tells it to.
class Deterministic {
 public:
  Deterministic() { at::globalContext().setDeterministicAlgorithms(true, false); }
  ~Deterministic() { at::globalContext().setDeterministicAlgorithms(false, false); }
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;
};

struct Case {
  TokenMask mask;
  std::int64_t heads, kv_heads, dim;
};

// The same values as a leaf on the device in another type.
Heads moved(const Heads& heads, at::Device device, at::ScalarType type) {
  Heads result = heads;
  for (auto* tensor : {&result.query, &result.key, &result.value})
    *tensor = tensor->detach().to(device, type).set_requires_grad(true);
  return result;
}

template <class Attention>
Outcome on_device(const Heads& heads, at::Device device, at::ScalarType type, Attention attention) {
  const auto there = moved(heads, device, type);
  const auto out = attention(there.query, there.key, there.value);
  const auto probe = values(out.sizes().vec(), 5).to(device, type);
  out.backward(probe);
  const auto back = [](const at::Tensor& tensor) { return tensor.detach().cpu().to(at::kDouble); };
  return {back(out), back(there.query.grad()), back(there.key.grad()), back(there.value.grad())};
}

Outcome blocked(const Case& one, const Heads& heads, at::Device device, at::ScalarType type) {
  const auto tiles = std::make_shared<const MaskTiles>(one.mask, kAttentionTiles);
  return on_device(heads, device, type, [&](auto... x) { return bitfield_attention(x..., tiles); });
}

// In sub-blocks, as if the GPU ran so many thread blocks at once; 0: whole blocks.
Outcome cut(const Case& one, const Heads& heads, at::Device device, at::ScalarType type,
            std::int64_t places) {
  const auto tiles = std::make_shared<const MaskTiles>(one.mask, kAttentionTiles);
  return on_device(heads, device, type,
                   [&](auto... x) { return gpu_attention(x..., tiles, places); });
}

// In fp64 from values that the narrower type holds.
Outcome expected(const Case& one, const Heads& heads, at::ScalarType type) {
  const auto rounded = moved(moved(heads, at::kCPU, type), at::kCPU, at::kDouble);
  return on_device(rounded, at::kCPU, at::kDouble,
                   [&](auto... x) { return dense_attention(x..., one.mask); });
}

void check(const Outcome& found, const Outcome& wanted, double most) {
  CHECK(relative_difference(found.out, wanted.out) < most);
  CHECK(relative_difference(found.d_query, wanted.d_query) < most);
  CHECK(relative_difference(found.d_key, wanted.d_key) < most);
  CHECK(relative_difference(found.d_value, wanted.d_value) < most);
}

void compare(const Case& one, at::Device device, at::ScalarType type, double most) {
  const Heads heads(one.mask.size(), one.heads, one.kv_heads, one.dim);
  CAPTURE(type, one.mask.size(), one.heads, one.kv_heads, one.dim);
  check(blocked(one, heads, device, type), expected(one, heads, type), most);
}

double allowed(at::ScalarType type) {
  return type == at::kDouble ? 1e-12 : type == at::kFloat ? 2e-5 : 2e-2;
}

TokenMask mask_of(const std::vector<TokenSample>& samples) {
  return TokenMask::from_samples(samples).value();
}

}  // namespace

TEST_CASE("attention on a GPU is the reference under masks of every kind", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (unsigned seed = 0; seed < 60; ++seed) {
      CAPTURE(seed);
      Random random(seed);
      const auto kv_heads = 1 + static_cast<std::int64_t>(random.below(2));
      const Case one{random_mask(random, 400),
                     kv_heads * (1 + static_cast<std::int64_t>(random.below(3))), kv_heads,
                     8 * (1 + static_cast<std::int64_t>(random.below(16)))};
      compare(one, device, type, allowed(type));
    }
}

TEST_CASE("attention on a GPU takes long packs and usual head sizes", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  const auto packed = mask_of({{300, {}}, {900, {{40, 616}, {616, 880}}}, {77, {{0, 77}}}});
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const std::int64_t dim : {32, 64, 80, 128})
      for (const auto& mask : {packed, mask_of({{1023, {}}}), mask_of({{512, {{0, 512}}}})})
        compare({mask, 4, 2, dim}, device, type, allowed(type));
}

TEST_CASE("head sizes that tensor cores do not take are computed in fp32", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  for (const std::int64_t dim : {1, 12, 36, 130, 256})
    for (const auto type : {at::kFloat, at::kBFloat16})
      compare({mask_of({{150, {{20, 90}}}}), 2, 1, dim}, device, type, allowed(type));
}

TEST_CASE("attention on a GPU in sub-blocks is the reference, with the same bits each time",
          "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  // With a place for each part, blocks are cut into single turns; with few, some into longer parts.
  // Of 256 only fp32 has heads, of 12 the plain kernels.
  const auto packed = mask_of({{300, {}}, {900, {{40, 616}, {616, 880}}}, {77, {{0, 77}}}});
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const std::int64_t dim : {12, 32, 64, 80, 128, 256})
      for (const auto& mask : {packed, mask_of({{1023, {}}})}) {
        if (dim == 256 && type == at::kDouble) continue;
        const Case one{mask, 4, 2, dim};
        const Heads heads(one.mask.size(), one.heads, one.kv_heads, one.dim);
        const auto wanted = expected(one, heads, type);
        for (const std::int64_t places : {0, 24, 65536}) {
          CAPTURE(type, dim, mask.size(), places);
          const auto found = cut(one, heads, device, type, places);
          check(found, wanted, allowed(type));
          CHECK(same_bits(found, cut(one, heads, device, type, places)));
        }
      }
}

TEST_CASE("attention on a GPU has the same bits each time", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  Random random(7);
  const Case one{random_mask(random, 700), 6, 2, 64};
  const Heads heads(one.mask.size(), one.heads, one.kv_heads, one.dim);
  for (const auto type : {at::kFloat, at::kBFloat16})
    CHECK(same_bits(blocked(one, heads, device, type), blocked(one, heads, device, type)));
}

TEST_CASE("packed attention on a GPU is the reference", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  const Deterministic deterministic;
  const std::vector<std::int64_t> segments{130, 1, 77, 300};
  for (const bool causal : {true, false}) {
    std::vector<TokenSample> samples;
    for (const auto length : segments) {
      samples.push_back({length, {}});
      if (!causal) samples.back().spans.push_back({0, length});
    }
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
      for (const std::int64_t dim : {20, 64, 128}) {
        CAPTURE(causal, type, dim);
        const Case one{mask_of(samples), 4, 2, dim};
        const Heads heads(one.mask.size(), one.heads, one.kv_heads, one.dim);
        const auto attend = [&](auto... x) { return packed_attention(x..., segments, causal); };
        const auto found = on_device(heads, device, type, attend);
        const auto wanted = expected(one, heads, type);
        CHECK(relative_difference(found.out, wanted.out) < allowed(type));
        CHECK(relative_difference(found.d_query, wanted.d_query) < allowed(type));
        CHECK(relative_difference(found.d_key, wanted.d_key) < allowed(type));
        CHECK(relative_difference(found.d_value, wanted.d_value) < allowed(type));
        CHECK(same_bits(found, on_device(heads, device, type, attend)));
      }
  }
}

TEST_CASE("attention on a GPU takes heads as they lie, and gradients for some alone",
          "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  const Case one{mask_of({{200, {{30, 150}}}}), 4, 2, 64};
  const auto tiles = std::make_shared<const MaskTiles>(one.mask, kAttentionTiles);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Heads heads(one.mask.size(), one.heads, one.kv_heads, one.dim);
    const auto wanted = expected(one, heads, type);
    // Parts of one tensor, not aligned to 16 bytes; a gradient that is the same number everywhere.
    const auto apart = [&](const at::Tensor& x) {
      auto room = at::zeros({x.size(0), x.size(1), x.size(2) + 3}, x.options());
      room.narrow(2, 1, x.size(2)).copy_(x);
      return room.narrow(2, 1, x.size(2));
    };
    const auto there = moved(heads, device, type);
    const auto key = there.key.detach();  // Frozen.
    const auto out = bitfield_attention(apart(there.query), apart(key), apart(there.value), tiles);
    CHECK(relative_difference(out.cpu(), wanted.out) < allowed(type));
    out.sum().backward();
    CHECK(there.query.grad().defined());
    CHECK_FALSE(key.grad().defined());
    // A row's weights add up to 1, so that all gradients of values do to the elements of the
    // output.
    const auto total = there.value.grad().to(at::kDouble).sum().item<double>();
    CHECK(std::abs(total / static_cast<double>(out.numel()) - 1) < allowed(type));
  }
}

TEST_CASE("scores far from zero keep their weights over many tiles", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  // The first key has the largest score, near 1000, and the value 1; the others, a little below, 0.
  const std::int64_t rows = 4096, dim = 64;
  const auto mask = mask_of({{rows, {{0, rows}}}});
  const auto tiles = std::make_shared<const MaskTiles>(mask, kAttentionTiles);
  const auto all = [&](double number) { return at::full({rows, 1, dim}, number, at::kDouble); };
  auto key = all(11), value = all(0);
  key[0].fill_(11.0625);
  value[0].fill_(1);
  const auto wanted = dense_attention(all(11.25), key, value, mask);
  const auto there = [&](const at::Tensor& x) { return x.to(device, at::kBFloat16); };
  const auto found = bitfield_attention(there(all(11.25)), there(key), there(value), tiles);
  CHECK(relative_difference(found.cpu(), wanted) < 1e-2);
}

TEST_CASE("a pack without rows is none on a GPU either", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  const auto tiles = std::make_shared<const MaskTiles>(mask_of({}), kAttentionTiles);
  const auto none = at::zeros({0, 2, 64}, at::TensorOptions(at::kBFloat16).device(device));
  CHECK(bitfield_attention(none, none, none, tiles).size(0) == 0);
}
