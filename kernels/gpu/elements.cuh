// Elements in vectors of 16 bytes, and sums over a thread block.

#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/gpu/rows.hpp"

namespace troupe::kernels::gpu {

/// The type to compute in.
template <class T>
struct Wide {
  using Type = float;
};
template <>
struct Wide<double> {
  using Type = double;
};
template <class T>
using WideOf = typename Wide<T>::Type;

template <class T>
__device__ inline WideOf<T> widen(T value) {
  return static_cast<WideOf<T>>(value);
}
template <class T>
__device__ inline T narrow(WideOf<T> value) {
  return static_cast<T>(value);
}
template <>
__device__ inline float widen<__nv_bfloat16>(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

/// So many elements, read and written at once.
template <int Count, class T>
struct alignas(Count * sizeof(T)) Piece {
  T at[Count];
};
template <int Count, class T>
__device__ inline Piece<Count, T> read(const T* from, std::int64_t at) {
  return *reinterpret_cast<const Piece<Count, T>*>(from + at);
}
template <int Count, class T>
__device__ inline void write(T* to, std::int64_t at, const Piece<Count, T>& piece) {
  *reinterpret_cast<Piece<Count, T>*>(to + at) = piece;
}

/// So many take 16 bytes.
template <class T>
inline constexpr int kPerVector = 16 / sizeof(T);

template <class W>
__device__ constexpr W infinity() {
  return static_cast<W>(__builtin_huge_val());
}

/// The sum, or the largest, over all threads of the block, in a fixed order; the same in each.
/// Every thread must call it.
template <int Threads, class W, class Combine>
__device__ inline W over_block(W value, Combine combine) {
  __shared__ W parts[Threads / 32];
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffU, value, apart));
  __syncthreads();  // Of the call before, all have read.
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = parts[0];
#pragma unroll
  for (int part = 1; part < Threads / 32; ++part) value = combine(value, parts[part]);
  return value;
}

template <int Threads, class W>
__device__ inline W sum_over_block(W value) {
  return over_block<Threads>(value, [](W a, W b) { return a + b; });
}
template <int Threads, class W>
__device__ inline W top_over_block(W value) {
  return over_block<Threads>(value, [](W a, W b) { return b > a ? b : a; });
}

/// Calls `function` with a value of the element's type.
template <class Function>
void in_element(Element element, Function function) {
  switch (element) {
    case Element::bf16: return function(__nv_bfloat16{});
    case Element::fp32: return function(float{});
    case Element::fp64: return function(double{});
  }
}

/// Whether vectors may be used: whole ones, and pointers that begin with one.
template <class... Pointers>
inline bool in_vectors(std::int64_t width, std::int64_t per_vector, Pointers... pointers) {
  return width % per_vector == 0 && ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

}  // namespace troupe::kernels::gpu
