// Test helper: the GPU that kernels are compared on.

#pragma once

#include <ATen/core/Tensor.h>
#include <dlfcn.h>

#include <optional>
#include <string>

#include "kernels/gpu/support.hpp"
#include "kernels/gpu_query.hpp"

namespace troupe::kernels {

/// The first GPU, with CUDA's part of LibTorch loaded; nothing, and why, where there is none that
/// our kernels run on.
inline std::optional<at::Device> a_gpu(std::string& why) {
  if (const auto gpus = query_gpus(); !gpus) {
    why = gpus.error().message;
    return std::nullopt;
  }
  if (!gpu::supports(0)) {
    why = "our kernels do not run on this GPU";
    return std::nullopt;
  }
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    why = dlerror();
    return std::nullopt;
  }
  return at::Device(at::kCUDA, 0);
}

}  // namespace troupe::kernels

/// Ends the test as skipped where there is no GPU; else names it.
#define TROUPE_ON_A_GPU(device)                              \
  std::string why_no_gpu;                                    \
  const auto found_gpu = troupe::kernels::a_gpu(why_no_gpu); \
  if (!found_gpu) SKIP(why_no_gpu);                          \
  const at::Device device = *found_gpu
