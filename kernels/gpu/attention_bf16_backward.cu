// Backward of bitfield attention in bf16. By key: a thread block has 64 keys, a warp 16 of them,
// and goes through all queries of the group that see some of them, 64 at a time; scores are
// computed turned, so that weights are at once the left factor of what the keys' gradients add up.
// By query: a thread block has 64 queries, a warp 16, and goes through the keys as forward does.

#include <cuda_runtime_api.h>

#include "kernels/gpu/attention_bf16.cuh"
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

template <int D>
struct SharedByKey {
  Bf16 key[kBackTile * D], value[kBackTile * D];
  Bf16 query[2][kBackTile * D], d_out[2][kBackTile * D];
  float log_total[2][kBackTile], pull[2][kBackTile];
};

template <int D>
__global__ __launch_bounds__(kThreads, 2) void by_key(Attention x, AttentionGradients g) {
  extern __shared__ __align__(128) unsigned char room[];
  auto& shared = *reinterpret_cast<SharedByKey<D>*>(room);
  const int dim = static_cast<int>(x.dim);
  const std::int64_t kv_head = blockIdx.x, group = x.heads / x.kv_heads;
  const std::int64_t padded = padded_rows(x.rows);
  const int block = x.by_key.order[blockIdx.y];
  const int begin = x.by_key.begin[block], count = x.by_key.begin[block + 1] - begin;
  const std::int64_t first = static_cast<std::int64_t>(block) * kBackTile;
  const int strip = static_cast<int>(threadIdx.x / 32) * 16;
  const int turns = static_cast<int>(group) * count;
  const auto load = [&](int turn, int stage) {
    const std::int64_t head = kv_head * group + turn / count;
    const std::int64_t query =
        static_cast<std::int64_t>(x.by_key.entries[begin + turn % count].other) * kBackTile;
    load_rows<kBackTile, D, kThreads>(shared.query[stage], head_of<Bf16>(x.query, head),
                                      x.query.row_stride, query, x.rows, dim);
    load_rows<kBackTile, D, kThreads>(shared.d_out[stage], head_of<Bf16>(g.d_out, head),
                                      g.d_out.row_stride, query, x.rows, dim);
    // Both are kept for whole blocks of rows.
    if (threadIdx.x < kBackTile / 4) {
      const std::int64_t at = head * padded + query + 4 * threadIdx.x;
      copy_16(shared.log_total[stage] + 4 * threadIdx.x,
              static_cast<const float*>(x.log_total) + at, true);
      copy_16(shared.pull[stage] + 4 * threadIdx.x, static_cast<const float*>(g.pull) + at, true);
    }
    copies_begin();
  };
  load_rows<kBackTile, D, kThreads>(shared.key, head_of<Bf16>(x.key, kv_head), x.key.row_stride,
                                    first, x.rows, dim);
  load_rows<kBackTile, D, kThreads>(shared.value, head_of<Bf16>(x.value, kv_head),
                                    x.value.row_stride, first, x.rows, dim);
  if (turns > 0) load(0, 0);
  float d_key[D / 8][4] = {}, d_value[D / 8][4] = {};
  const float scale = static_cast<float>(x.scale) * kLog2E;
  const int key = static_cast<int>(first) + strip + lane_row();
  constexpr int kPart = kPairsByKey<D>;
  for (int turn = 0; turn < turns; ++turn) {
    const int stage = turn % 2;
    copies_end<0>();
    __syncthreads();
    if (turn + 1 < turns) load(turn + 1, 1 - stage);
    const TileEntry entry = x.by_key.entries[begin + turn % count];
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
  const float back = static_cast<float>(x.scale);
  store_rows<D>(g.d_key, kv_head, d_key, back, back, first + strip, x.rows, dim);
  store_rows<D>(g.d_value, kv_head, d_value, 1, 1, first + strip, x.rows, dim);
}

template <int D>
struct SharedByQuery {
  Bf16 query[kBackTile * D], d_out[kBackTile * D];
  Bf16 key[2][kBackTile * D], value[2][kBackTile * D];
};

template <int D>
__global__ __launch_bounds__(kThreads, 2) void by_query(Attention x, AttentionGradients g) {
  extern __shared__ __align__(128) unsigned char room[];
  auto& shared = *reinterpret_cast<SharedByQuery<D>*>(room);
  const int dim = static_cast<int>(x.dim);
  const std::int64_t head = blockIdx.x, kv_head = head / (x.heads / x.kv_heads);
  const int block = x.back_by_query.order[blockIdx.y];
  const int begin = x.back_by_query.begin[block], end = x.back_by_query.begin[block + 1];
  const std::int64_t first = static_cast<std::int64_t>(block) * kBackTile;
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
  if (begin < end) load(begin, 0);
  const std::int64_t statistic = head * padded_rows(x.rows) + first + strip + lane_row();
  float divisor[2], pull[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    divisor[half] = static_cast<const float*>(x.log_total)[statistic + 8 * half];
    pull[half] = static_cast<const float*>(g.pull)[statistic + 8 * half];
  }
  float d_query[D / 8][4] = {};
  const float scale = static_cast<float>(x.scale) * kLog2E;
  for (int at = begin; at < end; ++at) {
    const int stage = (at - begin) % 2;
    copies_end<0>();
    __syncthreads();
    if (at + 1 < end) load(at + 1, 1 - stage);
    const TileEntry entry = x.back_by_query.entries[at];
    Results<kPairs> weights, pushed;
    multiply<D, kPairs>(weights, shared.query, strip, shared.key[stage]);
    multiply<D, kPairs>(pushed, shared.d_out, strip, shared.value[stage]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const QuerySight sight(x.mask, first + strip + lane_row() + 8 * half, x.rows, entry.test);
#pragma unroll
      for (int n = 0; n < 2 * kPairs; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float weight = exp2f(fmaf(weights[n][2 * half + e], scale, -divisor[half]));
          if (entry.test != 0 && !sight.sees(entry.other * kBackTile + n * 8 + lane_column() + e))
            weight = 0;
          pushed[n][2 * half + e] = weight * (pushed[n][2 * half + e] - pull[half]);
        }
    }
    add_product<D, kPairs>(d_query, pushed, shared.key[stage]);
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
  const dim3 keys(static_cast<unsigned>(x.kv_heads), static_cast<unsigned>(x.by_key.blocks));
  start(by_key<D>, keys, kThreads, sizeof(SharedByKey<D>), stream, x, g);
  const dim3 queries(static_cast<unsigned>(x.heads), static_cast<unsigned>(x.back_by_query.blocks));
  start(by_query<D>, queries, kThreads, sizeof(SharedByQuery<D>), stream, x, g);
}

}  // namespace

void attend_bf16_backward(const Attention& x, const AttentionGradients& gradients, Stream stream) {
  const auto blocks = static_cast<unsigned>((x.heads * padded_rows(x.rows) + kWarps - 1) / kWarps);
  start(sum_pull, dim3(blocks), kThreads, 0, stream, x, gradients);
  if (x.dim <= 32) return launch<32>(x, gradients, stream);
  if (x.dim <= 64) return launch<64>(x, gradients, stream);
  launch<128>(x, gradients, stream);
}

}  // namespace troupe::kernels::gpu
