// Kernels on a GPU that memory bounds: the bytes that they have to move, and the milliseconds that
// they take, a JSON object a line.
//
//   gpu_memory_bench [REPEATS]
//
// Sizes are those of a large step: an optimizer step of 128 million parameters in bf16, in one
// piece and by layers, the norm of their gradients, and the loss of 8192 rows over a vocabulary of
// 128256.

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "kernels/cross_entropy.hpp"
#include "runtime/state/adamw.hpp"
#include "runtime/state/gradient_norm.hpp"
#include "tests/bench/gpu/device_clock.hpp"

using namespace troupe;

namespace {

constexpr std::int64_t kParameters = std::int64_t{1} << 27;
constexpr std::int64_t kRows = 8192, kVocabulary = 128256;
constexpr int kWarmUp = 2;
// AdamW reads the master, two moments and the gradient, and writes these, the gradient as zeros,
// and the parameter in bf16.
constexpr std::int64_t kAdamWBytes = 8 * 4 + 2;
constexpr std::int64_t kBf16Bytes = 2;

void tell(const char* kernel, std::int64_t bytes, std::vector<double> times) {
  times.erase(times.begin(), times.begin() + kWarmUp);
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  std::printf(R"({"measure": "memory", "kernel": "%s", "bytes": %ld, "ms": %.4f, "ms_min": %.4f, )"
              R"("ms_max": %.4f})"
              "\n",
              kernel, bytes, bench::median(times), *least, *most);
  std::fflush(stdout);
}

void measure_adamw(int repeats) {
  const auto on_gpu = at::TensorOptions(at::kCUDA);
  auto parameter = at::randn({kParameters}, on_gpu.dtype(at::kBFloat16));
  auto state = state::make_adamw_state(parameter);
  const auto gradient = at::randn({kParameters}, on_gpu.dtype(at::kFloat));
  std::vector<double> times;
  for (int step = 1; step <= repeats + kWarmUp; ++step)
    times.push_back(bench::device_ms([&] {
      state::adamw_step(parameter, state, gradient, {}, 1e-4, 0.5, step,
                        state::GradientAfter::zero);
    }));
  tell("AdamW", kAdamWBytes * kParameters, std::move(times));
}

// The same elements as layers have them: groups of twelve parameters, whose gradients lie end to
// end and of which half are vectors. A launch a group.
void measure_adamw_of_layers(int repeats) {
  constexpr std::int64_t kLayers = 16, kMatrices = 6, kWidth = 1024, kVector = 1001;
  constexpr std::int64_t kMatrix = kParameters / (kLayers * kMatrices * kWidth);
  constexpr std::int64_t kOfLayer = kMatrices * (kMatrix * kWidth + kVector);
  struct Group {
    std::vector<at::Tensor> values, gradients;
    std::vector<state::AdamWState> states;
  };
  const auto on_gpu = at::TensorOptions(at::kCUDA);
  std::vector<Group> layers(kLayers);
  for (Group& layer : layers) {
    const auto flat = at::randn({kOfLayer}, on_gpu.dtype(at::kFloat));
    std::int64_t begin = 0;
    for (std::int64_t p = 0; p < 2 * kMatrices; ++p) {
      const auto shape = p % 2 == 0 ? std::vector<std::int64_t>{kMatrix, kWidth}
                                    : std::vector<std::int64_t>{kVector};
      layer.values.push_back(at::randn(shape, on_gpu.dtype(at::kBFloat16)));
      layer.states.push_back(state::make_adamw_state(layer.values.back()));
      const auto size = layer.values.back().numel();
      layer.gradients.push_back(flat.narrow(0, begin, size).view(shape));
      begin += size;
    }
  }
  std::vector<double> times;
  for (int step = 1; step <= repeats + kWarmUp; ++step)
    times.push_back(bench::device_ms([&] {
      for (Group& layer : layers)
        state::adamw_steps(layer.values, layer.states, layer.gradients, {}, 1e-4, 0.5, step);
    }));
  tell("AdamW, 16 layers of 12 parameters", kAdamWBytes * kLayers * kOfLayer, std::move(times));
}

// Norms of as many gradients: read once.
void measure_norm(int repeats) {
  const auto gradients = at::randn({kParameters}, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
  std::vector<double> times;
  for (int round = 0; round < repeats + kWarmUp; ++round)
    times.push_back(bench::device_ms([&] {
      static_cast<void>(state::range_numbers(gradients, {0, kParameters}, {}));
    }));
  tell("norm of gradients", 4 * kParameters, std::move(times));
}

void measure_cross_entropy(int repeats) {
  const auto on_gpu = at::TensorOptions(at::kCUDA);
  auto logits = at::randn({kRows, kVocabulary}, on_gpu.dtype(at::kBFloat16));
  logits.requires_grad_();
  const auto targets = at::randint(kVocabulary, {kRows}, on_gpu.dtype(at::kLong));
  const auto d_sums = at::ones({1}, on_gpu.dtype(at::kFloat));
  std::vector<double> forward, backward;
  for (int round = 0; round < repeats + kWarmUp; ++round) {
    at::Tensor sums;
    logits.mutable_grad() = at::Tensor{};
    forward.push_back(
        bench::device_ms([&] { sums = kernels::cross_entropy_sums(logits, targets, {kRows}); }));
    backward.push_back(bench::device_ms([&] { sums.backward(d_sums); }));
  }
  // Logits are read there; read again on the way back, where their gradients are written.
  tell("cross entropy, forward", kBf16Bytes * kRows * kVocabulary, std::move(forward));
  tell("cross entropy, backward", 2 * kBf16Bytes * kRows * kVocabulary, std::move(backward));
}

}  // namespace

int main(int count, char** words) {
  const int repeats = count > 1 ? std::max(1, std::atoi(words[1])) : 5;
  if (!bench::use_gpu()) return 1;
  measure_adamw(repeats);
  measure_adamw_of_layers(repeats);
  measure_norm(repeats);
  measure_cross_entropy(repeats);
  return 0;
}
