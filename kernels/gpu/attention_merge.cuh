// Partial results of sub-blocks: where they lie, and the kernels that make one result of them. One
// after the other, in the order of their slots: the same bits each time.

#pragma once

#include <cuda_runtime_api.h>

#include "kernels/gpu/attention_bf16.cuh"
#include "kernels/gpu/elements.cuh"
#include "kernels/gpu/launch.cuh"

namespace troupe::kernels::gpu {

/// The first row of a partial result, in room for [slots, heads, Block, columns].
template <int Block, class T>
__device__ inline T* partial_rows(void* room, std::int64_t slot, std::int64_t heads,
                                  std::int64_t head, std::int64_t columns) {
  return static_cast<T*>(room) + (slot * heads + head) * Block * columns;
}

/// Writes a warp's 16 x D sums from `to` on, where rows are `columns` apart.
template <int D>
__device__ inline void store_partial(float* to, std::int64_t columns, const float (&from)[D / 8][4],
                                     int dim) {
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    const int column = n * 8 + lane_column();
    if (column >= dim) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2*>(to + (lane_row() + 8 * half) * columns + column) =
          make_float2(from[n][2 * half], from[n][2 * half + 1]);
  }
}

inline constexpr int kMergeThreads = 128, kMergeWarps = kMergeThreads / 32;
inline constexpr int kMergeRows = 16;  ///< Of a block, by one thread block.
/// The largest head size of kernels that compute in T; only those in fp32 throughout have 256.
template <int Block, class T>
inline constexpr int kHeadMax = Block == kQueryBlock || sizeof(T) == 8 ? 128 : 256;

/// What scores are powers of.
struct BaseTwo {
  __device__ static float power(float x) { return exp2f(x); }
  __device__ static float log(float x) { return log2f(x); }
};
struct BaseE {
  __device__ static float power(float x) { return expf(x); }
  __device__ static float log(float x) { return logf(x); }
  __device__ static double power(double x) { return ::exp(x); }
  __device__ static double log(double x) { return ::log(x); }
};

/// Forward, of a grid [splits * Block / kMergeRows, heads]: a warp takes a row at a time. Each
/// partial result counts by how far its largest score lies below that of all.
template <class Base, int Block, class T, class E>
__global__ __launch_bounds__(kMergeThreads) void merge_rows(Attention x, HeadRows to) {
  constexpr int kPieces = Block / kMergeRows, kColumns = kHeadMax<Block, T> / 32;
  const SplitBlock split = x.by_query.splits[blockIdx.x / kPieces];
  const std::int64_t head = blockIdx.y;
  const int dim = static_cast<int>(x.dim), lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t columns = x.dim + kTotalColumns, apart = x.heads * Block * columns;
  const int begin = static_cast<int>(blockIdx.x % kPieces) * kMergeRows;
  for (int row = begin + static_cast<int>(threadIdx.x / 32); row < begin + kMergeRows;
       row += kMergeWarps) {
    const T* parts =
        partial_rows<Block, const T>(x.room, split.slot, x.heads, head, columns) + row * columns;
    const T* totals = parts + dim;
    T top = -infinity<T>();
#pragma unroll 1
    for (int i = 0; i < split.count; ++i) {
      const T other = totals[i * apart];
      top = other > top ? other : top;
    }
    T total = 0, sums[kColumns] = {};
#pragma unroll 1
    for (int i = 0; i < split.count; ++i) {
      const T* part = parts + i * apart;
      // A part in which the row saw nothing has no largest score.
      const T own = part[dim], weight = own == -infinity<T>() ? T{0} : Base::power(own - top);
      total += weight * part[dim + 1];
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        if (lane + 32 * c < dim) sums[c] += weight * part[lane + 32 * c];
    }
    const T factor = total > 0 ? 1 / total : T{0};
    const std::int64_t query = static_cast<std::int64_t>(split.block) * Block + row;
    if (lane == 0)
      static_cast<T*>(x.log_total)[head * padded_rows(x.rows) + query] =
          total > 0 && query < x.rows ? top + Base::log(total) : infinity<T>();
    if (query >= x.rows) continue;
    E* to_row = head_of<E>(to, head) + query * to.row_stride;
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      if (lane + 32 * c < dim) to_row[lane + 32 * c] = narrow<E>(sums[c] * factor);
  }
}

/// Where the columns of a partial result go: the first `dim` times a factor to one tensor, those
/// behind them to another.
template <class T>
struct MergedSums {
  HeadRows first, second;
  T first_factor, second_factor;
  int columns, dim;
};

/// Backward, of a grid [splits * Block / kMergeRows, heads]: what sub-blocks summed up, in order.
template <int Block, class T, class E>
__global__ __launch_bounds__(kMergeThreads) void merge_sums(TileList list, void* room,
                                                            std::int64_t rows, MergedSums<T> to) {
  constexpr int kPieces = Block / kMergeRows;
  const SplitBlock split = list.splits[blockIdx.x / kPieces];
  const std::int64_t head = blockIdx.y, heads = gridDim.y;
  const std::int64_t apart = heads * Block * to.columns;
  const int begin = static_cast<int>(blockIdx.x % kPieces) * kMergeRows;
  for (int row = begin + static_cast<int>(threadIdx.x / 32); row < begin + kMergeRows;
       row += kMergeWarps) {
    const std::int64_t at = static_cast<std::int64_t>(split.block) * Block + row;
    if (at >= rows) return;
    const T* parts = partial_rows<Block, const T>(room, split.slot, heads, head, to.columns) +
                     static_cast<std::int64_t>(row) * to.columns;
    for (int column = static_cast<int>(threadIdx.x % 32); column < to.columns; column += 32) {
      T sum = 0;
      for (int i = 0; i < split.count; ++i) sum += parts[i * apart + column];
      if (column < to.dim)
        head_of<E>(to.first, head)[at * to.first.row_stride + column] =
            narrow<E>(sum * to.first_factor);
      else
        head_of<E>(to.second, head)[at * to.second.row_stride + column - to.dim] =
            narrow<E>(sum * to.second_factor);
    }
  }
}

/// The grid of both for a list.
template <int Block>
dim3 merge_grid(const TileList& list, std::int64_t heads) {
  return {static_cast<unsigned>(list.split_count * (Block / kMergeRows)),
          static_cast<unsigned>(heads)};
}

}  // namespace troupe::kernels::gpu
