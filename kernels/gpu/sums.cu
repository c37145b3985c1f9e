#include "kernels/gpu/sums.hpp"

#include <cuda_runtime_api.h>

#include "kernels/gpu/elements.cuh"
#include "kernels/gpu/launch.cuh"

namespace troupe::kernels::gpu {

namespace {

constexpr int kThreads = 512;

// Pieces of 16 bytes in turn, then what is left. Where these do not begin at multiples of 16 bytes,
// the same elements are read one by one.
template <bool Aligned, class T>
__device__ inline double own_squares(const T* values, std::int64_t count) {
  constexpr int kCount = kPerVector<T>;
  const std::int64_t pieces = count / kCount;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  double sum = 0;
  for (std::int64_t i = thread; i < pieces; i += kSquareParts * kThreads) {
    Piece<kCount, T> piece;
    if constexpr (Aligned)
      piece = read<kCount>(values, i * kCount);
    else
      for (int e = 0; e < kCount; ++e) piece.at[e] = values[i * kCount + e];
#pragma unroll
    for (int e = 0; e < kCount; ++e)
      sum += static_cast<double>(piece.at[e]) * static_cast<double>(piece.at[e]);
  }
  for (std::int64_t i = pieces * kCount + thread; i < count; i += kSquareParts * kThreads)
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

template <bool Aligned, class T>
__global__ void sum_squares(const T* values, std::int64_t count, double* room, double* total) {
  static_assert(kSquareParts == kThreads);
  __shared__ bool is_last;
  double sum = sum_over_block<kThreads>(own_squares<Aligned>(values, count));
  auto* const done = reinterpret_cast<unsigned*>(room + kSquareParts);
  if (threadIdx.x == 0) {
    room[blockIdx.x] = sum;
    __threadfence();  // The part is there before it counts as done.
    is_last = atomicAdd(done, 1U) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  sum = sum_over_block<kThreads>(__ldcg(room + threadIdx.x));
  if (threadIdx.x != 0) return;
  *total += sum;
  *done = 0;
}

}  // namespace

void add_squares(const void* values, std::int64_t count, bool wide, double* room, double* total,
                 Stream stream) {
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const bool aligned = reinterpret_cast<std::uintptr_t>(values) % 16 == 0;
    start(aligned ? sum_squares<true, T> : sum_squares<false, T>,
          dim3(static_cast<unsigned>(kSquareParts)), kThreads, 0, stream,
          static_cast<const T*>(values), count, room, total);
  };
  wide ? run(double{}) : run(float{});
}

}  // namespace troupe::kernels::gpu
