// Backward of bitfield attention in bf16. By key: a thread block has 64 keys, a warp 16 of them,
// and goes through all queries of the group that see some of them, 64 at a time; scores are
// computed turned, so that weights are at once the left factor of what the keys' gradients add up.
// By query: a thread block has 64 queries, a warp 16, and goes through the keys as forward does.
// Sub-blocks leave their sums as they are.

#include <cuda_runtime_api.h>

#include "kernels/gpu/attention_bf16.cuh"
#include "kernels/gpu/attention_merge.cuh"
#include "kernels/gpu/launch.cuh"

namespace troupe::kernels::gpu {

namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kPairs = 4;  // 64 queries or keys in 16s.

template <int Pairs>
using Results = float[2 * Pairs][4];

// result = left rows [first, first + 16) times `Pairs` times 16 rows of `right` from `from` on,
// turned.
template <int D, int Pairs>
__device__ void multiply(Results<Pairs>& result, const Bf16* left, int first, const Bf16* right,
                         int from = 0) {
#pragma unroll
  for (int n = 0; n < 2 * Pairs; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) result[n][e] = 0;
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    std::uint32_t a[4];
    load_left<D>(a, left, first, step);
#pragma unroll
    for (int pair = 0; pair < Pairs; ++pair) {
      std::uint32_t b[4];
      load_right<D>(b, right, from + 16 * pair, step);
      multiply_add(result[2 * pair], a, b[0], b[1]);
      multiply_add(result[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

// total += left [16 x 16 Pairs] times as many rows of `right` [64 x D] from `from` on.
template <int D, int Pairs>
__device__ void add_product(float (&total)[D / 8][4], const Results<Pairs>& left, const Bf16* right,
                            int from = 0) {
#pragma unroll
  for (int step = 0; step < Pairs; ++step) {
    std::uint32_t a[4];
    as_left(a, left[2 * step], left[2 * step + 1]);
#pragma unroll
    for (int pair = 0; pair < D / 16; ++pair) {
      std::uint32_t b[4];
      load_right_turned<D>(b, right, from + 16 * step, pair);
      multiply_add(total[2 * pair], a, b[0], b[1]);
      multiply_add(total[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

// Queries that `by_key` takes at a time, in 16s. At 128 the gradients of a warp's keys and values
// alone are 128 registers of a thread: beside them there is room for scores of half a tile. Sums
// run over the queries in the same order.
template <int D>
inline constexpr int kPairsByKey = D > 64 ? kPairs / 2 : kPairs;

// Of a sub-block, in shared memory: there are no registers to keep it in.
struct Turns {
  int first_head, begin, count, to;
};

template <int D>
struct SharedByKey {
  Bf16 key[kBackTile * D], value[kBackTile * D];
  Bf16 query[2][kBackTile * D], d_out[2][kBackTile * D];
  float log_total[2][kBackTile], pull[2][kBackTile];
  Turns turns;
};

template <int D>
__global__ __launch_bounds__(kThreads, 2) void by_key(Attention x, AttentionGradients g) {
  extern __shared__ __align__(128) unsigned char room[];
  auto& shared = *reinterpret_cast<SharedByKey<D>*>(room);
  const int dim = static_cast<int>(x.dim);
  const std::int64_t kv_head = blockIdx.x;
  const SubBlock part = x.by_key.parts[blockIdx.y];
  if (threadIdx.x == 0) {
    const int begin = x.by_key.begin[part.block];
    shared.turns = {static_cast<int>(kv_head * (x.heads / x.kv_heads)), begin,
                    x.by_key.begin[part.block + 1] - begin, part.to};
  }
  __syncthreads();
  const int strip = static_cast<int>(threadIdx.x / 32) * 16;
  const auto load = [&](int turn, int stage) {
    const Turns turns = shared.turns;
    const std::int64_t head = turns.first_head + turn / turns.count;
    const TileEntry entry = x.by_key.entries[turns.begin + turn % turns.count];
    const std::int64_t query = static_cast<std::int64_t>(entry.other) * kBackTile;
    load_rows<kBackTile, D, kThreads>(shared.query[stage], head_of<Bf16>(x.query, head),
                                      x.query.row_stride, query, x.rows, dim);
    load_rows<kBackTile, D, kThreads>(shared.d_out[stage], head_of<Bf16>(g.d_out, head),
                                      g.d_out.row_stride, query, x.rows, dim);
    // Both are kept for whole blocks of rows.
    if (threadIdx.x < kBackTile / 4) {
      const std::int64_t at = head * padded_rows(x.rows) + query + 4 * threadIdx.x;
      copy_16(shared.log_total[stage] + 4 * threadIdx.x,
              static_cast<const float*>(x.log_total) + at, true);
      copy_16(shared.pull[stage] + 4 * threadIdx.x, static_cast<const float*>(g.pull) + at, true);
    }
    copies_begin();
  };
  const std::int64_t keys = static_cast<std::int64_t>(part.block) * kBackTile;
  load_rows<kBackTile, D, kThreads>(shared.key, head_of<Bf16>(x.key, kv_head), x.key.row_stride,
                                    keys, x.rows, dim);
  load_rows<kBackTile, D, kThreads>(shared.value, head_of<Bf16>(x.value, kv_head),
                                    x.value.row_stride, keys, x.rows, dim);
  if (part.from < part.to) load(part.from, part.from % 2);
  float d_key[D / 8][4] = {}, d_value[D / 8][4] = {};
  const float scale = static_cast<float>(x.scale) * kLog2E;
  const int key = part.block * kBackTile + strip + lane_row();
  constexpr int kPart = kPairsByKey<D>;
  for (int turn = part.from; turn < shared.turns.to; ++turn) {
    const int stage = turn % 2;
    copies_end<0>();
    __syncthreads();
    if (turn + 1 < shared.turns.to) load(turn + 1, 1 - stage);
    const TileEntry entry = x.by_key.entries[shared.turns.begin + turn % shared.turns.count];
#pragma unroll 1
    for (int from = 0; from < kBackTile; from += 16 * kPart) {
      Results<kPart> weights, pushed;
      multiply<D, kPart>(weights, shared.key, strip, shared.query[stage], from);
#pragma unroll
      for (int n = 0; n < 2 * kPart; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = from + n * 8 + lane_column() + e;
          const float divisor = shared.log_total[stage][column];
          float& low = weights[n][e];
          float& high = weights[n][2 + e];
          low = exp2f(fmaf(low, scale, -divisor));
          high = exp2f(fmaf(high, scale, -divisor));
          if (entry.test != 0) {
            const QuerySight sight(x.mask,
                                   static_cast<std::int64_t>(entry.other) * kBackTile + column,
                                   x.rows, entry.test);
            if (!sight.sees(key)) low = 0;
            if (!sight.sees(key + 8)) high = 0;
          }
        }
      add_product<D, kPart>(d_value, weights, shared.d_out[stage], from);
      multiply<D, kPart>(pushed, shared.value, strip, shared.d_out[stage], from);
#pragma unroll
      for (int n = 0; n < 2 * kPart; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float pull = shared.pull[stage][from + n * 8 + lane_column() + e];
          pushed[n][e] = weights[n][e] * (pushed[n][e] - pull);
          pushed[n][2 + e] = weights[n][2 + e] * (pushed[n][2 + e] - pull);
        }
      add_product<D, kPart>(d_key, pushed, shared.query[stage], from);
    }
  }
  // Read again: there is no register to keep it in.
  const SubBlock done = x.by_key.parts[blockIdx.y];
  if (done.slot >= 0) {
    float* rows =
        partial_rows<kBackTile, float>(g.room, done.slot, x.kv_heads, blockIdx.x, 2 * x.dim) +
        strip * 2 * x.dim;
    store_partial<D>(rows, 2 * x.dim, d_key, dim);
    store_partial<D>(rows + x.dim, 2 * x.dim, d_value, dim);
    return;
  }
  const float back = static_cast<float>(x.scale);
  const std::int64_t first = static_cast<std::int64_t>(done.block) * kBackTile + strip;
  store_rows<D>(g.d_key, blockIdx.x, d_key, back, back, first, x.rows, dim);
  store_rows<D>(g.d_value, blockIdx.x, d_value, 1, 1, first, x.rows, dim);
}

template <int D>
struct SharedByQuery {
  Bf16 query[kBackTile * D], d_out[kBackTile * D];
  Bf16 key[2][kBackTile * D], value[2][kBackTile * D];
  float log_total[kBackTile], pull[kBackTile];  // No registers are left for these at 128.
};

template <int D>
__global__ __launch_bounds__(kThreads, 2) void by_query(Attention x, AttentionGradients g) {
  extern __shared__ __align__(128) unsigned char room[];
  auto& shared = *reinterpret_cast<SharedByQuery<D>*>(room);
  const int dim = static_cast<int>(x.dim);
  const std::int64_t head = blockIdx.x, kv_head = head / (x.heads / x.kv_heads);
  const SubBlock part = x.back_by_query.parts[blockIdx.y];
  const int begin = x.back_by_query.begin[part.block] + part.from;
  const int end = begin + part.to - part.from;
  const std::int64_t first = static_cast<std::int64_t>(part.block) * kBackTile;
  const int strip = static_cast<int>(threadIdx.x / 32) * 16;
  const auto load = [&](int at, int stage) {
    const std::int64_t key =
        static_cast<std::int64_t>(x.back_by_query.entries[at].other) * kBackTile;
    load_rows<kBackTile, D, kThreads>(shared.key[stage], head_of<Bf16>(x.key, kv_head),
                                      x.key.row_stride, key, x.rows, dim);
    load_rows<kBackTile, D, kThreads>(shared.value[stage], head_of<Bf16>(x.value, kv_head),
                                      x.value.row_stride, key, x.rows, dim);
    copies_begin();
  };
  load_rows<kBackTile, D, kThreads>(shared.query, head_of<Bf16>(x.query, head), x.query.row_stride,
                                    first, x.rows, dim);
  load_rows<kBackTile, D, kThreads>(shared.d_out, head_of<Bf16>(g.d_out, head), g.d_out.row_stride,
                                    first, x.rows, dim);
  if (begin < end) load(begin, begin % 2);
  // The first turn waits for these.
  if (threadIdx.x < kBackTile) {
    const std::int64_t statistic = head * padded_rows(x.rows) + first + threadIdx.x;
    shared.log_total[threadIdx.x] = static_cast<const float*>(x.log_total)[statistic];
    shared.pull[threadIdx.x] = static_cast<const float*>(g.pull)[statistic];
  }
  float d_query[D / 8][4] = {};
  const float scale = static_cast<float>(x.scale) * kLog2E;
  for (int at = begin; at < end; ++at) {
    const int stage = at % 2;
    copies_end<0>();
    __syncthreads();
    if (at + 1 < end) load(at + 1, 1 - stage);
    const TileEntry entry = x.back_by_query.entries[at];
    Results<kPairs> weights, pushed;
    multiply<D, kPairs>(weights, shared.query, strip, shared.key[stage]);
    multiply<D, kPairs>(pushed, shared.d_out, strip, shared.value[stage]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = strip + lane_row() + 8 * half;
      const QuerySight sight(x.mask, first + row, x.rows, entry.test);
      const float divisor = shared.log_total[row], pull = shared.pull[row];
#pragma unroll
      for (int n = 0; n < 2 * kPairs; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float weight = exp2f(fmaf(weights[n][2 * half + e], scale, -divisor));
          if (entry.test != 0 && !sight.sees(entry.other * kBackTile + n * 8 + lane_column() + e))
            weight = 0;
          pushed[n][2 * half + e] = weight * (pushed[n][2 * half + e] - pull);
        }
    }
    add_product<D, kPairs>(d_query, pushed, shared.key[stage]);
  }
  if (const int slot = x.back_by_query.parts[blockIdx.y].slot; slot >= 0) {
    float* rows =
        partial_rows<kBackTile, float>(g.room, slot, x.heads, head, x.dim) + strip * x.dim;
    return store_partial<D>(rows, x.dim, d_query, dim);
  }
  const float back = static_cast<float>(x.scale);
  store_rows<D>(g.d_query, head, d_query, back, back, first + strip, x.rows, dim);
}

// A warp per row and head: sum(d_out * out), 0 beyond the rows.
__global__ void sum_pull(Attention x, AttentionGradients g) {
  const std::int64_t padded = padded_rows(x.rows);
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const std::int64_t head = at / padded, row = at % padded;
  if (head >= x.heads) return;
  float sum = 0;
  if (row < x.rows)
    for (std::int64_t i = threadIdx.x % 32; i < x.dim; i += 32)
      sum += __bfloat162float(head_of<Bf16>(g.d_out, head)[row * g.d_out.row_stride + i]) *
             __bfloat162float(head_of<Bf16>(g.out, head)[row * g.out.row_stride + i]);
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, apart);
  if (threadIdx.x % 32 == 0) static_cast<float*>(g.pull)[at] = sum;
}

template <int D>
void launch(const Attention& x, const AttentionGradients& g, Stream stream) {
  const auto back = static_cast<float>(x.scale);
  const int dim = static_cast<int>(x.dim);
  const auto merge = [&](const TileList& list, std::int64_t heads, const MergedSums<float>& to) {
    start(merge_sums<kBackTile, float, Bf16>, merge_grid<kBackTile>(list, heads), kMergeThreads, 0,
          stream, list, g.room, x.rows, to);
  };
  const dim3 keys(static_cast<unsigned>(x.kv_heads), static_cast<unsigned>(x.by_key.part_count));
  start(by_key<D>, keys, kThreads, sizeof(SharedByKey<D>), stream, x, g);
  merge(x.by_key, x.kv_heads, {g.d_key, g.d_value, back, 1, 2 * dim, dim});
  const dim3 queries(static_cast<unsigned>(x.heads),
                     static_cast<unsigned>(x.back_by_query.part_count));
  start(by_query<D>, queries, kThreads, sizeof(SharedByQuery<D>), stream, x, g);
  merge(x.back_by_query, x.heads, {g.d_query, {}, back, 0, dim, dim});
}

template <int D>
Places places() {
  return {0, places_of(by_query<D>, kThreads, sizeof(SharedByQuery<D>)),
          places_of(by_key<D>, kThreads, sizeof(SharedByKey<D>))};
}

}  // namespace

void attend_bf16_backward(const Attention& x, const AttentionGradients& gradients, Stream stream) {
  const auto blocks = static_cast<unsigned>((x.heads * padded_rows(x.rows) + kWarps - 1) / kWarps);
  start(sum_pull, dim3(blocks), kThreads, 0, stream, x, gradients);
  if (x.dim <= 32) return launch<32>(x, gradients, stream);
  if (x.dim <= 64) return launch<64>(x, gradients, stream);
  launch<128>(x, gradients, stream);
}

Places places_bf16_backward(std::int64_t dim) {
  return dim <= 32 ? places<32>() : dim <= 64 ? places<64>() : places<128>();
}

}  // namespace troupe::kernels::gpu
