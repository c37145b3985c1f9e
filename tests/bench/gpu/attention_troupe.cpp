// Attention on a GPU: milliseconds of forward and of backward, a JSON object a line.
//
//   gpu_attention_bench [TOKENS_MAX] [REPEATS]
//
// Masks and sizes are those of tests/bench/gpu/attention_peers.py, which measures others on them.

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/bitfield_attention.hpp"
#include "kernels/gpu_query.hpp"
#include "kernels/packed_attention.hpp"
#include "tests/bench/attention_masks.hpp"

using namespace troupe;
using namespace troupe::kernels;

namespace {

constexpr std::int64_t kHeads = 32, kKvHeads = 8;

// Between events on the stream, which has other work until all is launched: launches are not
// measured.
template <class Function>
double ms(Function function) {
  const auto stream = c10::impl::VirtualGuardImpl(at::kCUDA).getStream(at::Device(at::kCUDA, 0));
  c10::Event begin(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT),
      end(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
  static const auto filling = at::randn({4096, 4096}, at::TensorOptions(at::kCUDA));
  for (int i = 0; i < 2; ++i) at::mm(filling, filling);  // About 5 ms.
  begin.record(stream);
  function();
  end.record(stream);
  end.synchronize();
  return begin.elapsedTime(end);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class Attention>
void measure(const std::string& name, TokenCount tokens, std::int64_t dim, int repeats,
             Attention attention) {
  const auto heads = [&](std::int64_t count) {
    return at::randn({tokens, count, dim}, at::TensorOptions(at::kBFloat16).device(at::kCUDA));
  };
  auto query = heads(kHeads), key = heads(kKvHeads), value = heads(kKvHeads);
  const auto d_out = heads(kHeads);
  for (auto* tensor : {&query, &key, &value}) tensor->requires_grad_();
  std::vector<double> forward, backward;
  for (int round = 0; round < repeats + 2; ++round) {
    at::Tensor out;
    for (auto* tensor : {&query, &key, &value}) tensor->mutable_grad() = at::Tensor{};
    const auto there = ms([&] { out = attention(query, key, value); });
    const auto back = ms([&] { out.backward(d_out); });
    if (round < 2) continue;
    forward.push_back(there);
    backward.push_back(back);
  }
  std::printf(
      R"({"mask": "%s", "tokens": %ld, "heads": %ld, "kv_heads": %ld, "dim": %ld, "dtype": "bf16", )"
      R"("forward_ms": %.4f, "backward_ms": %.4f})"
      "\n",
      name.c_str(), tokens, kHeads, kKvHeads, dim, median(forward), median(backward));
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

}  // namespace

int main(int count, char** words) {
  at::globalContext().setDeterministicAlgorithms(true, false);  // As the engine trains.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  const TokenCount most = count > 1 ? std::atol(words[1]) : 65536;
  const int repeats = count > 2 ? std::atoi(words[2]) : 5;
  if (const auto gpus = query_gpus(); !gpus) {
    std::fprintf(stderr, "%s\n", gpus.error().message.c_str());
    return 1;
  }
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  for (const TokenCount tokens : {4096, 16384, 65536, 131072})
    if (tokens <= most) measure_all(tokens, 128, repeats);
  if (most >= 16384) measure_all(16384, 64, repeats);
  return 0;
}
