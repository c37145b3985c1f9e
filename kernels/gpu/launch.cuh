// How kernels are started, and how CUDA's codes become errors.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/gpu/attention.hpp"

namespace troupe::kernels::gpu {

inline void check(const char* what, cudaError_t code) {
  if (code != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
}

/// Lets thread blocks of a kernel have so much shared memory.
template <class... Parameters>
void allow_shared(void (*kernel)(Parameters...), std::size_t shared) {
  // More than 48 KiB must be asked for, what kernels declare themselves included.
  if (shared > 40 * 1024)
    check("cudaFuncSetAttribute",
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared)));
}

/// Throws std::runtime_error where CUDA refuses the launch. What fails later is told by LibTorch's
/// next wait for the stream.
template <class... Parameters, class... Arguments>
void start(void (*kernel)(Parameters...), dim3 grid, int threads, std::size_t shared, Stream stream,
           const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0) return;
  allow_shared(kernel, shared);
  kernel<<<grid, static_cast<unsigned>(threads), shared, static_cast<cudaStream_t>(stream)>>>(
      arguments...);
  check("a kernel's launch", cudaGetLastError());
}

/// Thread blocks of a kernel that the current device runs at once.
template <class... Parameters>
std::int64_t places_of(void (*kernel)(Parameters...), int threads, std::size_t shared) {
  int device = 0, processors = 0, each = 0;
  check("cudaGetDevice", cudaGetDevice(&device));
  check("cudaDeviceGetAttribute",
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  allow_shared(kernel, shared);
  check("cudaOccupancyMaxActiveBlocksPerMultiprocessor",
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, shared));
  return static_cast<std::int64_t>(processors) * each;
}

}  // namespace troupe::kernels::gpu
