// What attention kernels share: the mask's test, and places of a thread's elements on tensor cores.

#pragma once

#include "kernels/gpu/attention.hpp"
#include "kernels/gpu/warp_tiles.cuh"

namespace troupe::kernels::gpu {

inline constexpr float kInfinity = __builtin_huge_valf();
inline constexpr float kLog2E = 1.4426950408889634F;

/// A thread's row and column within a 16 x 8 result.
__device__ inline int lane_row() { return static_cast<int>(threadIdx.x % 32) / 4; }
__device__ inline int lane_column() { return static_cast<int>(threadIdx.x % 4) * 2; }

/// What one query sees, read once for all keys of a tile.
struct QuerySight {
  int begin = 0, end = 0;
  std::int64_t word = 0;
  const std::int64_t* words = nullptr;

  __device__ QuerySight(const MaskRows& mask, std::int64_t query, std::int64_t rows, int test) {
    if (query >= rows) return;
    const int2 range = reinterpret_cast<const int2*>(mask.ranges)[query];
    begin = range.x;
    end = range.y;
    if (test < 2) return;
    words = mask.words;
    word = words[query] & 0x7fffffffffffffffLL;
  }
  __device__ bool sees(int key) const {
    return key >= begin && key < end && (words == nullptr || (word & words[key]) != 0);
  }
};

template <class T>
__device__ inline T* head_of(const HeadRows& rows, std::int64_t head) {
  return static_cast<T*>(rows.data) + head * rows.head_stride;
}

/// Writes a 16 x D result, times `factors` of its two rows, from row `first` on; what lies beyond
/// `rows` and `dim` is left out.
template <int D>
__device__ inline void store_rows(const HeadRows& to, std::int64_t head,
                                  const float (&from)[D / 8][4], float low_factor,
                                  float high_factor, std::int64_t first, std::int64_t rows,
                                  int dim) {
  Bf16* base = head_of<Bf16>(to, head);
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    const int column = n * 8 + lane_column();
    if (column >= dim) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first + lane_row() + 8 * half;
      const float factor = half == 0 ? low_factor : high_factor;
      if (row < rows)
        *reinterpret_cast<std::uint32_t*>(base + row * to.row_stride + column) =
            pack(from[n][2 * half] * factor, from[n][2 * half + 1] * factor);
    }
  }
}

}  // namespace troupe::kernels::gpu
