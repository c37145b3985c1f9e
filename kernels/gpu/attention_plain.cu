// Bitfield attention in fp32 and fp64: tiles of 32 x 32, 256 threads of 2 x 2 elements each, no
// tensor cores, so that nothing is computed in a narrower type. Sub-blocks leave their sums as they
// are; which slot they have is read at the end, so that no register is kept for it.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

#include "kernels/gpu/attention_bf16.cuh"
#include "kernels/gpu/attention_merge.cuh"
#include "kernels/gpu/elements.cuh"
#include "kernels/gpu/launch.cuh"

namespace troupe::kernels::gpu {

namespace {

constexpr int kSide = 16, kThreads = kSide * kSide, kTile = kPlainTile;

// Thread blocks that a multiprocessor must have registers for. Where it is not said, ptxas spills a
// few to make room for one more (seen with 64 a thread, by query on sm_80 and sm_90). Two leave 128
// to a thread, enough but for the widest sums. Bytes: of a row of a thread's sums.
template <std::size_t Bytes>
inline constexpr int kBlocksMin = Bytes <= 32 ? 2 : 1;

// A tile of rows in shared memory; one more column keeps rows in different banks.
template <class T>
struct Rows {
  T* data;
  int width;

  __device__ T& at(int row, int column) const { return data[row * (width + 1) + column]; }
  __device__ void load(const HeadRows& from, std::int64_t head, std::int64_t first,
                       std::int64_t rows) const {
    const T* base = head_of<const T>(from, head);
    for (int i = threadIdx.x; i < kTile * width; i += kThreads) {
      const std::int64_t row = first + i / width;
      at(i / width, i % width) = row < rows ? base[row * from.row_stride + i % width] : T{0};
    }
  }
};

template <class T>
__device__ Rows<T> take(unsigned char*& room, int width) {
  const Rows<T> rows{reinterpret_cast<T*>(room), width};
  room += sizeof(T) * kTile * static_cast<std::size_t>(width + 1);
  return rows;
}

__device__ int thread_row() { return 2 * static_cast<int>(threadIdx.x / kSide); }
__device__ int thread_column() { return static_cast<int>(threadIdx.x % kSide); }

// This thread's elements (thread_row() + i, thread_column() + 16 j) of left times right, turned.
template <class T>
__device__ void multiply(T (&result)[2][2], const Rows<T>& left, const Rows<T>& right) {
  for (auto& row : result) row[0] = row[1] = 0;
  for (int d = 0; d < left.width; ++d)
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        result[i][j] += left.at(thread_row() + i, d) * right.at(thread_column() + kSide * j, d);
}

// total(row, column) += sum over k of left(row, k) right(k, column), or of left(k, row) if turned.
template <int Columns, bool Turned, class T>
__device__ void add_product(T (&total)[2][Columns], const Rows<T>& left, const Rows<T>& right) {
  for (int k = 0; k < kTile; ++k)
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
      const int column = thread_column() + kSide * c;
      if (column >= right.width) continue;
      const T factor = right.at(k, column);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        total[i][c] +=
            (Turned ? left.at(k, thread_row() + i) : left.at(thread_row() + i, k)) * factor;
    }
}

template <int Columns, class T>
__device__ void store(const HeadRows& to, std::int64_t head, const T (&from)[2][Columns], T factor,
                      std::int64_t first, std::int64_t rows, int dim) {
  T* base = head_of<T>(to, head);
  for (int i = 0; i < 2; ++i)
    for (int c = 0; c < Columns; ++c) {
      const std::int64_t row = first + thread_row() + i;
      const int column = thread_column() + kSide * c;
      if (row < rows && column < dim) base[row * to.row_stride + column] = from[i][c] * factor;
    }
}

// Into a partial result, from `to` on, where rows are `columns` apart.
template <int Columns, class T>
__device__ void keep(T* to, std::int64_t columns, const T (&from)[2][Columns], int dim) {
  for (int i = 0; i < 2; ++i)
    for (int c = 0; c < Columns; ++c) {
      const int column = thread_column() + kSide * c;
      if (column < dim) to[(thread_row() + i) * columns + column] = from[i][c];
    }
}

template <int Columns, class T>
__global__ __launch_bounds__(kThreads,
                             (kBlocksMin<Columns * sizeof(T)>)) void forward(Attention x,
                                                                             HeadRows to) {
  extern __shared__ __align__(128) unsigned char room[];
  unsigned char* left = room;
  const int dim = static_cast<int>(x.dim);
  const auto query = take<T>(left, dim), key = take<T>(left, dim), value = take<T>(left, dim);
  const auto weights = take<T>(left, kTile);
  __shared__ T factors[kTile], totals[kTile], tops[kTile];
  const std::int64_t head = blockIdx.x, kv_head = head / (x.heads / x.kv_heads);
  const SubBlock part = x.by_query.parts[blockIdx.y];
  const int begin = x.by_query.begin[part.block] + part.from, end = begin + part.to - part.from;
  const std::int64_t first = static_cast<std::int64_t>(part.block) * kTile;
  query.load(x.query, head, first, x.rows);
  if (threadIdx.x < kTile) {
    totals[threadIdx.x] = 0;
    tops[threadIdx.x] = -infinity<T>();
  }
  T out[2][Columns] = {};
  for (int at = begin; at < end; ++at) {
    const TileEntry entry = x.by_query.entries[at];
    const std::int64_t keys = static_cast<std::int64_t>(entry.other) * kTile;
    __syncthreads();
    key.load(x.key, kv_head, keys, x.rows);
    value.load(x.value, kv_head, keys, x.rows);
    __syncthreads();
    T scores[2][2];
    multiply(scores, query, key);
    for (int i = 0; i < 2; ++i) {
      const QuerySight sight(x.mask, first + thread_row() + i, x.rows, entry.test);
      for (int j = 0; j < 2; ++j) {
        const int column = thread_column() + kSide * j;
        const bool seen = entry.test == 0 || sight.sees(static_cast<int>(keys) + column);
        weights.at(thread_row() + i, column) =
            seen ? scores[i][j] * static_cast<T>(x.scale) : -infinity<T>();
      }
    }
    __syncthreads();
    // A warp takes four rows, a lane a column of each.
    const int lane = static_cast<int>(threadIdx.x % 32);
    for (int row = static_cast<int>(threadIdx.x / 32) * 4, last = row + 4; row < last; ++row) {
      const T score = weights.at(row, lane);
      T top = score;
      for (int apart = 16; apart > 0; apart /= 2) {
        const T other = __shfl_xor_sync(0xffffffffU, top, apart);
        top = other > top ? other : top;
      }
      top = tops[row] > top ? tops[row] : top;
      const T base = top == -infinity<T>() ? T{0} : top;
      const T weight = exp(score - base);
      T sum = weight;
      for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, apart);
      weights.at(row, lane) = weight;
      __syncwarp();
      if (lane == 0) {
        factors[row] = exp(tops[row] - base);
        totals[row] = totals[row] * factors[row] + sum;
        tops[row] = top;
      }
      __syncwarp();
    }
    __syncthreads();
    for (int i = 0; i < 2; ++i)
      for (int c = 0; c < Columns; ++c) out[i][c] *= factors[thread_row() + i];
    add_product<Columns, false>(out, weights, value);
  }
  __syncthreads();
  if (const int slot = x.by_query.parts[blockIdx.y].slot; slot >= 0) {
    const std::int64_t columns = x.dim + kTotalColumns;
    T* rows = partial_rows<kTile, T>(x.room, slot, x.heads, head, columns);
    keep<Columns>(rows, columns, out, dim);
    if (threadIdx.x < kTile) {
      rows[threadIdx.x * columns + dim] = tops[threadIdx.x];
      rows[threadIdx.x * columns + dim + 1] = totals[threadIdx.x];
    }
    return;
  }
  for (int i = 0; i < 2; ++i) {
    const T total = totals[thread_row() + i];
    for (int c = 0; c < Columns; ++c) out[i][c] *= total > 0 ? 1 / total : T{0};
  }
  store<Columns>(to, head, out, T{1}, first, x.rows, dim);
  if (threadIdx.x < kTile) {
    const T total = totals[threadIdx.x];
    const std::int64_t row = first + threadIdx.x;
    static_cast<T*>(x.log_total)[head * padded_rows(x.rows) + row] =
        total > 0 && row < x.rows ? tops[threadIdx.x] + log(total) : infinity<T>();
  }
}

// Weights of a tile and what pulls at its scores, both [query, key] in shared memory.
template <class T>
__device__ void weigh(const Attention& x, const AttentionGradients& g, std::int64_t head,
                      std::int64_t first, std::int64_t keys, int test, const Rows<T>& query,
                      const Rows<T>& key, const Rows<T>& value, const Rows<T>& d_out,
                      const Rows<T>& weights, const Rows<T>& pushed) {
  T scores[2][2], pushes[2][2];
  multiply(scores, query, key);
  multiply(pushes, d_out, value);
  for (int i = 0; i < 2; ++i) {
    const std::int64_t row = first + thread_row() + i;
    const std::int64_t statistic = head * padded_rows(x.rows) + row;
    const T divisor = static_cast<const T*>(x.log_total)[statistic];
    const T pull = static_cast<const T*>(g.pull)[statistic];
    const QuerySight sight(x.mask, row, x.rows, test);
    for (int j = 0; j < 2; ++j) {
      const int column = thread_column() + kSide * j;
      const bool seen = test == 0 || sight.sees(static_cast<int>(keys) + column);
      const T weight = seen ? exp(scores[i][j] * static_cast<T>(x.scale) - divisor) : T{0};
      weights.at(thread_row() + i, column) = weight;
      pushed.at(thread_row() + i, column) = weight * (pushes[i][j] - pull);
    }
  }
}

template <int Columns, class T>
__global__ __launch_bounds__(kThreads,
                             (kBlocksMin<Columns * sizeof(T)>)) void by_key(Attention x,
                                                                            AttentionGradients g) {
  extern __shared__ __align__(128) unsigned char room[];
  unsigned char* left = room;
  const int dim = static_cast<int>(x.dim);
  const auto query = take<T>(left, dim), key = take<T>(left, dim), value = take<T>(left, dim);
  const auto d_out = take<T>(left, dim);
  const auto weights = take<T>(left, kTile), pushed = take<T>(left, kTile);
  const std::int64_t kv_head = blockIdx.x, group = x.heads / x.kv_heads;
  const SubBlock part = x.by_key.parts[blockIdx.y];
  const int begin = x.by_key.begin[part.block], count = x.by_key.begin[part.block + 1] - begin;
  const std::int64_t keys = static_cast<std::int64_t>(part.block) * kTile;
  key.load(x.key, kv_head, keys, x.rows);
  value.load(x.value, kv_head, keys, x.rows);
  T d_key[2][Columns] = {}, d_value[2][Columns] = {};
  for (int turn = part.from; turn < part.to; ++turn) {
    const std::int64_t head = kv_head * group + turn / count;
    const TileEntry entry = x.by_key.entries[begin + turn % count];
    const std::int64_t first = static_cast<std::int64_t>(entry.other) * kTile;
    __syncthreads();
    query.load(x.query, head, first, x.rows);
    d_out.load(g.d_out, head, first, x.rows);
    __syncthreads();
    weigh(x, g, head, first, keys, entry.test, query, key, value, d_out, weights, pushed);
    __syncthreads();
    add_product<Columns, true>(d_value, weights, d_out);
    add_product<Columns, true>(d_key, pushed, query);
  }
  if (const int slot = x.by_key.parts[blockIdx.y].slot; slot >= 0) {
    T* rows = partial_rows<kTile, T>(g.room, slot, x.kv_heads, kv_head, 2 * x.dim);
    keep<Columns>(rows, 2 * x.dim, d_key, dim);
    return keep<Columns>(rows + x.dim, 2 * x.dim, d_value, dim);
  }
  store<Columns>(g.d_key, kv_head, d_key, static_cast<T>(x.scale), keys, x.rows, dim);
  store<Columns>(g.d_value, kv_head, d_value, T{1}, keys, x.rows, dim);
}

template <int Columns, class T>
__global__ __launch_bounds__(kThreads, (kBlocksMin<Columns * sizeof(T)>)) void by_query(
    Attention x, AttentionGradients g) {
  extern __shared__ __align__(128) unsigned char room[];
  unsigned char* left = room;
  const int dim = static_cast<int>(x.dim);
  const auto query = take<T>(left, dim), key = take<T>(left, dim), value = take<T>(left, dim);
  const auto d_out = take<T>(left, dim);
  const auto weights = take<T>(left, kTile), pushed = take<T>(left, kTile);
  const std::int64_t head = blockIdx.x, kv_head = head / (x.heads / x.kv_heads);
  const SubBlock part = x.back_by_query.parts[blockIdx.y];
  const int begin = x.back_by_query.begin[part.block] + part.from;
  const int end = begin + part.to - part.from;
  const std::int64_t first = static_cast<std::int64_t>(part.block) * kTile;
  query.load(x.query, head, first, x.rows);
  d_out.load(g.d_out, head, first, x.rows);
  T d_query[2][Columns] = {};
  for (int at = begin; at < end; ++at) {
    const TileEntry entry = x.back_by_query.entries[at];
    const std::int64_t keys = static_cast<std::int64_t>(entry.other) * kTile;
    __syncthreads();
    key.load(x.key, kv_head, keys, x.rows);
    value.load(x.value, kv_head, keys, x.rows);
    __syncthreads();
    weigh(x, g, head, first, keys, entry.test, query, key, value, d_out, weights, pushed);
    __syncthreads();
    add_product<Columns, false>(d_query, pushed, key);
  }
  if (const int slot = x.back_by_query.parts[blockIdx.y].slot; slot >= 0)
    return keep<Columns>(partial_rows<kTile, T>(g.room, slot, x.heads, head, x.dim), x.dim, d_query,
                         dim);
  store<Columns>(g.d_query, head, d_query, static_cast<T>(x.scale), first, x.rows, dim);
}

// A thread per row and head, in the order of the elements; 0 beyond the rows.
template <class T>
__global__ void sum_pull(Attention x, AttentionGradients g) {
  const std::int64_t padded = padded_rows(x.rows);
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t head = at / padded, row = at % padded;
  if (head >= x.heads) return;
  T sum = 0;
  if (row < x.rows)
    for (std::int64_t i = 0; i < x.dim; ++i)
      sum += head_of<T>(g.d_out, head)[row * g.d_out.row_stride + i] *
             head_of<T>(g.out, head)[row * g.out.row_stride + i];
  static_cast<T*>(g.pull)[at] = sum;
}

template <class T>
std::size_t bytes(std::int64_t dim, int of_heads, int of_weights) {
  return sizeof(T) * kTile *
         static_cast<std::size_t>(of_heads * (dim + 1) + of_weights * (kTile + 1));
}

dim3 grid(std::int64_t heads, const TileList& list) {
  return {static_cast<unsigned>(heads), static_cast<unsigned>(list.part_count)};
}

template <class T>
struct Plain {
  template <int Columns>
  static void forward(const Attention& x, const HeadRows& out, Stream stream) {
    start(gpu::forward<Columns, T>, grid(x.heads, x.by_query), kThreads, bytes<T>(x.dim, 3, 1),
          stream, x, out);
    start(merge_rows<BaseE, kTile, T, T>, merge_grid<kTile>(x.by_query, x.heads), kMergeThreads, 0,
          stream, x, out);
  }
  template <int Columns>
  static void backward(const Attention& x, const AttentionGradients& g, Stream stream) {
    const auto blocks = (x.heads * padded_rows(x.rows) + kThreads - 1) / kThreads;
    start(sum_pull<T>, dim3(static_cast<unsigned>(blocks)), kThreads, 0, stream, x, g);
    const auto back = static_cast<T>(x.scale);
    const int dim = static_cast<int>(x.dim);
    start(by_key<Columns, T>, grid(x.kv_heads, x.by_key), kThreads, bytes<T>(x.dim, 4, 2), stream,
          x, g);
    merge(x, g, x.by_key, x.kv_heads, {g.d_key, g.d_value, back, 1, 2 * dim, dim}, stream);
    start(by_query<Columns, T>, grid(x.heads, x.back_by_query), kThreads, bytes<T>(x.dim, 4, 2),
          stream, x, g);
    merge(x, g, x.back_by_query, x.heads, {g.d_query, {}, back, 0, dim, dim}, stream);
  }
  template <int Columns>
  static Places places(std::int64_t dim) {
    return {places_of(gpu::forward<Columns, T>, kThreads, bytes<T>(dim, 3, 1)),
            places_of(by_query<Columns, T>, kThreads, bytes<T>(dim, 4, 2)),
            places_of(by_key<Columns, T>, kThreads, bytes<T>(dim, 4, 2))};
  }

 private:
  static void merge(const Attention& x, const AttentionGradients& g, const TileList& list,
                    std::int64_t heads, const MergedSums<T>& to, Stream stream) {
    start(merge_sums<kTile, T, T>, merge_grid<kTile>(list, heads), kMergeThreads, 0, stream, list,
          g.room, x.rows, to);
  }
};

// Calls `function` with Plain<T> and how many columns a thread has.
template <class T, class Function>
void in_columns(std::int64_t dim, Function function) {
  if (dim <= 2 * kSide) return function(Plain<T>{}, std::integral_constant<int, 2>{});
  if (dim <= 4 * kSide) return function(Plain<T>{}, std::integral_constant<int, 4>{});
  if (sizeof(T) == 8 || dim <= 8 * kSide)
    return function(Plain<T>{}, std::integral_constant<int, 8>{});
  if constexpr (sizeof(T) == 4) function(Plain<T>{}, std::integral_constant<int, 16>{});
}

}  // namespace

void attend_plain(const Attention& x, const HeadRows& out, bool wide, Stream stream) {
  const auto run = [&](auto plain, auto columns) {
    decltype(plain)::template forward<decltype(columns)::value>(x, out, stream);
  };
  wide ? in_columns<double>(x.dim, run) : in_columns<float>(x.dim, run);
}

void attend_plain_backward(const Attention& x, const AttentionGradients& gradients, bool wide,
                           Stream stream) {
  const auto run = [&](auto plain, auto columns) {
    decltype(plain)::template backward<decltype(columns)::value>(x, gradients, stream);
  };
  wide ? in_columns<double>(x.dim, run) : in_columns<float>(x.dim, run);
}

Places places_plain(std::int64_t dim, bool wide) {
  Places found;
  const auto ask = [&](auto plain, auto columns) {
    found = decltype(plain)::template places<decltype(columns)::value>(dim);
  };
  wide ? in_columns<double>(dim, ask) : in_columns<float>(dim, ask);
  return found;
}

}  // namespace troupe::kernels::gpu
