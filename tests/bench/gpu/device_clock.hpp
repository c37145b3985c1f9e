// The GPU that benches of this folder measure on, and its clock.

#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/gpu_query.hpp"

namespace troupe::bench {

/// Loads CUDA's part of LibTorch, to compute as the engine trains; false, and why on the standard
/// error, where there is no GPU.
inline bool use_gpu() {
  at::globalContext().setDeterministicAlgorithms(true, false);
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  if (const auto gpus = kernels::query_gpus(); !gpus) {
    std::fprintf(stderr, "%s\n", gpus.error().message.c_str());
    return false;
  }
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr) return true;
  std::fprintf(stderr, "%s\n", dlerror());
  return false;
}

/// Milliseconds of what `function` launches, between events on the stream, which has other work
/// until all is launched: launches are not measured. REQUIRES: use_gpu().
template <class Function>
double device_ms(Function function) {
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

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace troupe::bench
