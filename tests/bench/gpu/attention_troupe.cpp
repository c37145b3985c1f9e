// Attention on a GPU: milliseconds of forward and of backward, a JSON object a line.
//
//   gpu_attention_bench [TOKENS_MAX] [REPEATS]
//
// Masks and sizes are those of tests/bench/gpu/attention_peers.py, which measures others on them.

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/bitfield_attention.hpp"
#include "kernels/gpu_attention.hpp"
#include "kernels/packed_attention.hpp"
#include "tests/bench/attention_masks.hpp"
#include "tests/bench/gpu/device_clock.hpp"

using namespace troupe;
using namespace troupe::kernels;

namespace {

struct HeadCounts {
  std::int64_t query = 32, key = 8;
};

template <class Attention>
void measure(const std::string& name, TokenCount tokens, std::int64_t dim, int repeats,
             Attention attention, const HeadCounts& counts = {}) {
  const auto heads = [&](std::int64_t count) {
    return at::randn({tokens, count, dim}, at::TensorOptions(at::kBFloat16).device(at::kCUDA));
  };
  auto query = heads(counts.query), key = heads(counts.key), value = heads(counts.key);
  const auto d_out = heads(counts.query);
  for (auto* tensor : {&query, &key, &value}) tensor->requires_grad_();
  std::vector<double> forward, backward;
  for (int round = 0; round < repeats + 2; ++round) {
    at::Tensor out;
    for (auto* tensor : {&query, &key, &value}) tensor->mutable_grad() = at::Tensor{};
    const auto there = bench::device_ms([&] { out = attention(query, key, value); });
    const auto back = bench::device_ms([&] { out.backward(d_out); });
    if (round < 2) continue;
    forward.push_back(there);
    backward.push_back(back);
  }
  std::printf(
      R"({"mask": "%s", "tokens": %ld, "heads": %ld, "kv_heads": %ld, "dim": %ld, "dtype": "bf16", )"
      R"("forward_ms": %.4f, "backward_ms": %.4f})"
      "\n",
      name.c_str(), tokens, counts.query, counts.key, dim, bench::median(forward),
      bench::median(backward));
  std::fflush(stdout);
}

void measure_all(TokenCount tokens, std::int64_t dim, int repeats) {
  for (const auto& [name, samples, causal] : bench::masks(tokens)) {
    if (name == "full" || name == "prefix") continue;  // Its peers are not measured under these.
    const auto tiles = std::make_shared<const MaskTiles>(TokenMask::from_samples(samples).value(),
                                                         kAttentionTiles);
    measure(name, tokens, dim, repeats, [&](auto... x) { return bitfield_attention(x..., tiles); });
    if (!causal) continue;
    std::vector<std::int64_t> segments;
    for (const auto& sample : samples) segments.push_back(sample.tokens);
    measure(name + ", library", tokens, dim, repeats,
            [&](auto... x) { return packed_attention(x..., segments, /*causal=*/true); });
  }
}

// A share of the heads, as tensor parallel ranks have it: few blocks are there to balance with, so
// long ones are cut into sub-blocks. Beside it the same without.
void measure_cuts(TokenCount tokens, int repeats) {
  const HeadCounts counts{4, 1};
  for (const auto& [name, samples, causal] : bench::masks(tokens)) {
    const auto tiles = std::make_shared<const MaskTiles>(TokenMask::from_samples(samples).value(),
                                                         kAttentionTiles);
    for (const bool whole : {false, true})
      measure(
          name + (whole ? ", 4 heads, whole blocks" : ", 4 heads"), tokens, 128, repeats,
          [&](auto... x) { return gpu_attention(x..., tiles, whole ? 0 : kAllPlaces); }, counts);
  }
}

}  // namespace

int main(int count, char** words) {
  const TokenCount most = count > 1 ? std::atol(words[1]) : 65536;
  const int repeats = count > 2 ? std::atoi(words[2]) : 5;
  if (!bench::use_gpu()) return 1;
  for (const TokenCount tokens : {4096, 16384})  // First: a limit may cut what is long.
    if (tokens <= most) measure_cuts(tokens, repeats);
  for (const TokenCount tokens : {4096, 16384, 65536, 131072})
    if (tokens <= most) measure_all(tokens, 128, repeats);
  if (most >= 16384) measure_all(16384, 64, repeats);
  return 0;
}
