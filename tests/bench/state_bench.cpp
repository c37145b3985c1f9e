// The optimizer's step, norms, hashes and files on one thread, beside copying the same memory.
//
// All are bound by memory: a step reads four arrays and writes three, so its bound is the bandwidth
// of copying. LibTorch's own fused AdamW stands beside ours.

#include <unistd.h>

#include <cstring>
#include <filesystem>

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "runtime/state/adamw.hpp"
#include "runtime/state/gradient_norm.hpp"
#include "runtime/state/safetensors.hpp"
#include "runtime/state/tensor_hash.hpp"
#include "tests/bench/report.hpp"

using namespace troupe;
using namespace troupe::state;

namespace {

constexpr std::int64_t kElements = 8 << 20;  // 32 MiB in fp32: beyond the caches.
constexpr double kGiga = 1e9;

double gigabytes(std::int64_t arrays) {
  return static_cast<double>(arrays * kElements * 4) / kGiga;
}

double copy_bandwidth() {
  const auto from = at::full({kElements}, 1.0F);
  auto to = at::zeros({kElements});
  const double seconds = bench::median_seconds(
      5, [&] { std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes()); });
  return gigabytes(2) / seconds;
}

double adamw_bandwidth() {
  auto parameter = at::full({1024, kElements / 1024}, 1.0F);
  const auto gradient = at::full(parameter.sizes(), 0.5F);
  auto state = make_adamw_state(parameter);
  std::int64_t step = 0;
  const double seconds = bench::median_seconds(
      5, [&] { adamw_step(parameter, state, gradient, {}, 1e-4, 0.9, ++step); });
  return gigabytes(7) / seconds;
}

double fused_adamw_bandwidth() {
  auto parameter = at::full({1024, kElements / 1024}, 1.0F);
  const auto gradient = at::full(parameter.sizes(), 0.5F);
  auto mean = at::zeros_like(parameter), square = at::zeros_like(parameter);
  auto step = at::zeros({});
  const double seconds = bench::median_seconds(5, [&] {
    step.add_(1);
    at::_fused_adamw_({parameter}, {gradient}, {mean}, {square}, {}, {step}, 1e-4, 0.9, 0.95, 0.01,
                      1e-8, false, false);
  });
  return gigabytes(7) / seconds;
}

}  // namespace

int main() {
  at::set_num_threads(1);
  const double copying = copy_bandwidth();
  const nlohmann::json bound{{"bound", copying}};
  bench::report("memory: copy", copying, "GB/s");
  bench::report("AdamW step", adamw_bandwidth(), "GB/s", bound);
  bench::report("AdamW step, LibTorch's fused", fused_adamw_bandwidth(), "GB/s", bound);
  const auto tensor = at::full({kElements}, 0.5F);
  double sum = 0;
  bench::report("squared norm",
                gigabytes(1) / bench::median_seconds(5, [&] { sum += squared_norm(tensor); }),
                "GB/s", bound);
  bench::report("parameter hash",
                gigabytes(1) / bench::median_seconds(
                                   5, [&] { sum += static_cast<double>(hash_tensor(tensor) & 1); }),
                "GB/s", bound);
  const auto path = std::filesystem::temp_directory_path() /
                    ("troupe-bench-" + std::to_string(::getpid()) + ".safetensors");
  bool done = true;
  bench::report("safetensors: write and flush",
                gigabytes(1) / bench::median_seconds(
                                   3,
                                   [&] {
                                     done = done && write_safetensors(path, {{"w", tensor}}).ok();
                                   }),
                "GB/s");
  bench::report(
      "safetensors: read",
      gigabytes(1) / bench::median_seconds(3, [&] { done = done && read_safetensors(path).ok(); }),
      "GB/s", bound);
  std::filesystem::remove(path);
  return done && sum > 0 ? 0 : 1;
}
