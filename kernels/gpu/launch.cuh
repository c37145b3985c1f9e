// How kernels are started, and how CUDA's codes become errors.

#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

#include "kernels/gpu/attention.hpp"

namespace troupe::kernels::gpu {

inline void check(const char* what, cudaError_t code) {
  if (code != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
}

/// Throws std::runtime_error where CUDA refuses the launch. What fails later is told by LibTorch's
/// next wait for the stream.
template <class... Parameters, class... Arguments>
void start(void (*kernel)(Parameters...), dim3 grid, int threads, std::size_t shared, Stream stream,
           const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0) return;
  // More than 48 KiB must be asked for, what kernels declare themselves included.
  if (shared > 40 * 1024)
    check("cudaFuncSetAttribute",
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared)));
  kernel<<<grid, static_cast<unsigned>(threads), shared, static_cast<cudaStream_t>(stream)>>>(
      arguments...);
  check("a kernel's launch", cudaGetLastError());
}

}  // namespace troupe::kernels::gpu
