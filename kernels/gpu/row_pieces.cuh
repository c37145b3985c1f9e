// What kernels on rows have in common: how threads go along a row, and in vectors where they fit.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/gpu/elements.cuh"

namespace troupe::kernels::gpu {

/// Of each thread block.
inline constexpr int kThreads = 256;

/// Calls `function(begin)` for this thread's part of a row, `Count` elements at a time.
template <int Count, class Function>
__device__ inline void along(std::int64_t width, Function function) {
  for (std::int64_t i = Count * threadIdx.x; i < width; i += Count * kThreads) function(i);
}

/// Adds up the partial sums of a weight's gradient, part after part.
template <class T>
__global__ void add_parts(const WideOf<T>* partial, std::int64_t parts, std::int64_t width, T* to) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= width) return;
  WideOf<T> sum = 0;
  for (std::int64_t part = 0; part < parts; ++part) sum += partial[part * width + column];
  to[column] = narrow<T>(sum);
}

/// Thread blocks for so many pieces, one to a thread.
inline dim3 blocks_for(std::int64_t pieces) {
  return {static_cast<unsigned>((pieces + kThreads - 1) / kThreads)};
}
/// Which of all threads this one is.
__device__ inline std::int64_t thread_of_grid() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

template <class W>
__device__ inline W sigmoid(W x) {
  return 1 / (1 + exp(-x));
}

/// Calls `function` with an element and how many to take at a time: vectors where they fit.
template <class Function, class... Pointers>
void in_pieces(Element element, std::int64_t width, Function function, Pointers... pointers) {
  in_element(element, [&](auto zero) {
    constexpr int kCount = kPerVector<decltype(zero)>;
    if (in_vectors(width, kCount, pointers...))
      function(zero, std::integral_constant<int, kCount>{});
    else
      function(zero, std::integral_constant<int, 1>{});
  });
}

}  // namespace troupe::kernels::gpu
