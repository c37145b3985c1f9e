// What bf16 kernels on tensor cores share: tiles in shared memory, 16 bytes at a time, laid so that
// the rows of a matrix instruction lie in different banks; loads that go on beside the arithmetic;
// products of 16 x 8 x 16.
//
// Fragments are those of PTX's mma.m16n8k16: in a 16 x 8 result, thread (g = lane / 4, t = lane %
// 4) has elements (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1).

#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace troupe::kernels::gpu {

using Bf16 = __nv_bfloat16;

/// Where 8 elements of a row of D lie, in elements.
template <int D>
__device__ inline int place(int row, int chunk) {
  constexpr int kChunks = D / 8;
  if constexpr (kChunks >= 8) return row * D + ((chunk ^ (row & 7)) * 8);
  return row * D + ((chunk ^ ((row >> 1) & (kChunks - 1))) * 8);
}

__device__ inline std::uint32_t shared_address(const void* to) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
}

/// 16 bytes from global to shared memory, or zeros.
__device__ inline void copy_16(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)),
               "l"(from), "r"(there ? 16 : 0));
}
__device__ inline void copies_begin() { asm volatile("cp.async.commit_group;\n" ::); }
/// Waits for all but the last `Left` groups of this thread.
template <int Left>
__device__ inline void copies_end() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(Left));
}

/// Rows [first, first + Rows) of a head, zeros beyond `rows` and `dim`, by all `Threads`.
template <int Rows, int D, int Threads>
__device__ inline void load_rows(Bf16* to, const Bf16* from, std::int64_t stride,
                                 std::int64_t first, std::int64_t rows, int dim) {
  constexpr int kChunks = D / 8;
#pragma unroll
  for (int i = threadIdx.x; i < Rows * kChunks; i += Threads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const bool there = first + row < rows && chunk * 8 < dim;
    copy_16(to + place<D>(row, chunk), there ? from + (first + row) * stride + chunk * 8 : from,
            there);
  }
}

__device__ inline void load_matrices(std::uint32_t (&to)[4], const Bf16* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(from)));
}
__device__ inline void load_matrices_turned(std::uint32_t (&to)[4], const Bf16* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(from)));
}

/// The left factor's 16 x 16 at (row, 16 * step) of a tile.
template <int D>
__device__ inline void load_left(std::uint32_t (&to)[4], const Bf16* tile, int row, int step) {
  const int lane = threadIdx.x % 32;
  load_matrices(to, tile + place<D>(row + (lane & 15), 2 * step + (lane >> 4)));
}
/// Right factors of two results side by side, whose columns are rows `row` to `row` + 15 of a tile.
template <int D>
__device__ inline void load_right(std::uint32_t (&to)[4], const Bf16* tile, int row, int step) {
  const int lane = threadIdx.x % 32;
  load_matrices(
      to, tile + place<D>(row + (lane & 7) + ((lane >> 4) << 3), 2 * step + ((lane >> 3) & 1)));
}
/// Likewise, whose columns are those of the tile from 16 * pair on, and whose depth is its rows.
template <int D>
__device__ inline void load_right_turned(std::uint32_t (&to)[4], const Bf16* tile, int row,
                                         int pair) {
  const int lane = threadIdx.x % 32;
  load_matrices_turned(to, tile + place<D>(row + (lane & 15), 2 * pair + (lane >> 4)));
}

__device__ inline void multiply_add(float (&to)[4], const std::uint32_t (&left)[4],
                                    std::uint32_t right_low, std::uint32_t right_high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(to[0]), "+f"(to[1]), "+f"(to[2]), "+f"(to[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_low), "r"(right_high));
}

__device__ inline std::uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}

/// Two results side by side as the left factor of a product over their columns.
__device__ inline void as_left(std::uint32_t (&to)[4], const float (&low)[4],
                               const float (&high)[4]) {
  to[0] = pack(low[0], low[1]);
  to[1] = pack(low[2], low[3]);
  to[2] = pack(high[0], high[1]);
  to[3] = pack(high[2], high[3]);
}

}  // namespace troupe::kernels::gpu
