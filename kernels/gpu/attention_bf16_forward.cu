// Forward of bitfield attention in bf16: a thread block has 128 queries of one head, a warp 32 of
// them; keys and values come 64 at a time, the next ones while these are computed with. Softmax as
// it goes along (FlashAttention), in powers of two. A sub-block leaves its sums as they are, with
// the largest score and the sum of weights of each row.

#include <cuda_runtime_api.h>

#include "kernels/gpu/attention_bf16.cuh"
#include "kernels/gpu/attention_merge.cuh"
#include "kernels/gpu/launch.cuh"

namespace troupe::kernels::gpu {

namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kStrips = kQueryBlock / (16 * kWarps);  // Of 16 queries, per warp.
constexpr int kPairs = kKeyTile / 16;

template <int D>
struct Shared {
  Bf16 query[kQueryBlock * D];
  Bf16 key[2][kKeyTile * D];
  Bf16 value[2][kKeyTile * D];
};

// Running softmax of a thread's two rows of a strip.
struct Totals {
  float top[2] = {-kInfinity, -kInfinity};
  float total[2] = {0, 0};  // Of this thread's columns.
};

// Keys that a warp takes at a time, in 16s. At 128 the rows that it sums up are 128 registers of a
// thread: beside them there is room for scores of 16 keys (of 32 ptxas spills some for sm_80).
template <int D>
inline constexpr int kPairsOf = D > 64 ? 1 : kPairs;

template <int Pairs>
using Scores = float[2 * Pairs][4];

// Of queries from `first` on and keys of the tile from `from` on.
template <int D, int Pairs>
__device__ void score(Scores<Pairs> (&scores)[kStrips], const Bf16* query, const Bf16* key,
                      int first, int from) {
#pragma unroll
  for (int s = 0; s < kStrips; ++s)
#pragma unroll
    for (int n = 0; n < 2 * Pairs; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[s][n][e] = 0;
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    std::uint32_t left[kStrips][4];
#pragma unroll
    for (int s = 0; s < kStrips; ++s) load_left<D>(left[s], query, first + 16 * s, step);
#pragma unroll
    for (int pair = 0; pair < Pairs; ++pair) {
      std::uint32_t right[4];
      load_right<D>(right, key, from + 16 * pair, step);
#pragma unroll
      for (int s = 0; s < kStrips; ++s) {
        multiply_add(scores[s][2 * pair], left[s], right[0], right[1]);
        multiply_add(scores[s][2 * pair + 1], left[s], right[2], right[3]);
      }
    }
  }
}

template <int Pairs>
__device__ void hide(Scores<Pairs>& scores, const Attention& x, std::int64_t query, int key,
                     int test) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const QuerySight sight(x.mask, query + lane_row() + 8 * half, x.rows, test);
#pragma unroll
    for (int n = 0; n < 2 * Pairs; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (!sight.sees(key + n * 8 + lane_column() + e)) scores[n][2 * half + e] = -kInfinity;
  }
}

// Scores become weights; what was summed so far is made smaller where a larger score was found.
template <int D, int Pairs>
__device__ void weigh(Scores<Pairs>& scores, Totals& totals, float (&out)[D / 8][4], float scale) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = totals.top[half];
#pragma unroll
    for (int n = 0; n < 2 * Pairs; ++n)
      top = fmaxf(top, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, 2));
    const float base = top == -kInfinity ? 0 : top * scale;
    // 1 to the bit where the largest stays: a rounded product would let sums drift.
    const float factor = top == totals.top[half] ? 1 : exp2f((totals.top[half] - top) * scale);
    totals.top[half] = top;
    totals.total[half] *= factor;
    // Seldom, after the first tiles: the whole warp passes over it.
    if (__any_sync(0xffffffffU, factor != 1)) {
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        out[n][2 * half] *= factor;
        out[n][2 * half + 1] *= factor;
      }
    }
#pragma unroll
    for (int n = 0; n < 2 * Pairs; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& value = scores[n][2 * half + e];
        value = exp2f(fmaf(value, scale, -base));
        totals.total[half] += value;
      }
  }
}

template <int D, int Pairs>
__device__ void add_values(float (&out)[kStrips][D / 8][4], const Scores<Pairs> (&weights)[kStrips],
                           const Bf16* value, int from) {
#pragma unroll
  for (int step = 0; step < Pairs; ++step) {
    std::uint32_t left[kStrips][4];
#pragma unroll
    for (int s = 0; s < kStrips; ++s)
      as_left(left[s], weights[s][2 * step], weights[s][2 * step + 1]);
#pragma unroll
    for (int pair = 0; pair < D / 16; ++pair) {
      std::uint32_t right[4];
      load_right_turned<D>(right, value, from + 16 * step, pair);
#pragma unroll
      for (int s = 0; s < kStrips; ++s) {
        multiply_add(out[s][2 * pair], left[s], right[0], right[1]);
        multiply_add(out[s][2 * pair + 1], left[s], right[2], right[3]);
      }
    }
  }
}

// Of all threads that have columns of a row.
__device__ float whole_row(float total) {
  total += __shfl_xor_sync(0xffffffffU, total, 1);
  total += __shfl_xor_sync(0xffffffffU, total, 2);
  return total;
}

template <int D>
__device__ void finish(const Attention& x, const HeadRows& to, std::int64_t head,
                       std::int64_t first, const Totals& totals, const float (&out)[D / 8][4],
                       float scale) {
  float factors[2];
  const std::int64_t padded = padded_rows(x.rows);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = whole_row(totals.total[half]);
    factors[half] = total > 0 ? 1 / total : 0;
    // Infinite where nothing is seen and beyond the rows: weights made from it are 0.
    const std::int64_t row = first + lane_row() + 8 * half;
    if (threadIdx.x % 4 == 0)
      static_cast<float*>(x.log_total)[head * padded + row] =
          total > 0 && row < x.rows ? totals.top[half] * scale + log2f(total) : kInfinity;
  }
  store_rows<D>(to, head, out, factors[0], factors[1], first, x.rows, static_cast<int>(x.dim));
}

// `first`: row of the block.
template <int D>
__device__ void keep(const Attention& x, std::int64_t head, int slot, int first,
                     const Totals& totals, const float (&out)[D / 8][4], float scale) {
  const std::int64_t columns = x.dim + kTotalColumns;
  float* rows =
      partial_rows<kQueryBlock, float>(x.room, slot, x.heads, head, columns) + first * columns;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = whole_row(totals.total[half]);
    if (threadIdx.x % 4 == 0)
      *reinterpret_cast<float2*>(rows + (lane_row() + 8 * half) * columns + x.dim) =
          make_float2(totals.top[half] * scale, total);
  }
  store_partial<D>(rows, columns, out, static_cast<int>(x.dim));
}

template <int D>
__global__ __launch_bounds__(kThreads) void forward(Attention x, HeadRows to) {
  extern __shared__ __align__(128) unsigned char room[];
  auto& shared = *reinterpret_cast<Shared<D>*>(room);
  const int dim = static_cast<int>(x.dim);
  const std::int64_t head = blockIdx.x, kv_head = head / (x.heads / x.kv_heads);
  const SubBlock part = x.by_query.parts[blockIdx.y];
  const int begin = x.by_query.begin[part.block] + part.from, end = begin + part.to - part.from;
  const std::int64_t first = static_cast<std::int64_t>(part.block) * kQueryBlock;
  const int strip = static_cast<int>(threadIdx.x / 32) * 16 * kStrips;
  const auto load = [&](int at, int stage) {
    const std::int64_t key = static_cast<std::int64_t>(x.by_query.entries[at].other) * kKeyTile;
    load_rows<kKeyTile, D, kThreads>(shared.key[stage], head_of<Bf16>(x.key, kv_head),
                                     x.key.row_stride, key, x.rows, dim);
    load_rows<kKeyTile, D, kThreads>(shared.value[stage], head_of<Bf16>(x.value, kv_head),
                                     x.value.row_stride, key, x.rows, dim);
    copies_begin();
  };
  load_rows<kQueryBlock, D, kThreads>(shared.query, head_of<Bf16>(x.query, head),
                                      x.query.row_stride, first, x.rows, dim);
  if (begin < end) load(begin, begin % 2);
  float out[kStrips][D / 8][4] = {};
  Totals totals[kStrips];
  const float scale = static_cast<float>(x.scale) * kLog2E;
  constexpr int kPart = kPairsOf<D>;
  for (int at = begin; at < end; ++at) {
    const int stage = at % 2;
    copies_end<0>();
    __syncthreads();  // This tile is there, and all are done with the one before.
    if (at + 1 < end) load(at + 1, 1 - stage);
    const TileEntry entry = x.by_query.entries[at];
#pragma unroll 1
    for (int from = 0; from < kKeyTile; from += 16 * kPart) {
      Scores<kPart> scores[kStrips];
      score<D, kPart>(scores, shared.query, shared.key[stage], strip, from);
#pragma unroll
      for (int s = 0; s < kStrips; ++s) {
        if (entry.test != 0)
          hide<kPart>(scores[s], x, first + strip + 16 * s, entry.other * kKeyTile + from,
                      entry.test);
        weigh<D, kPart>(scores[s], totals[s], out[s], scale);
      }
      add_values<D, kPart>(out, scores, shared.value[stage], from);
    }
  }
  const int slot = x.by_query.parts[blockIdx.y].slot;  // Not kept: there is no register to spare.
#pragma unroll
  for (int s = 0; s < kStrips; ++s) {
    if (slot < 0)
      finish<D>(x, to, head, first + strip + 16 * s, totals[s], out[s], scale);
    else
      keep<D>(x, head, slot, strip + 16 * s, totals[s], out[s], scale);
  }
}

template <int D>
void launch(const Attention& x, const HeadRows& to, Stream stream) {
  const dim3 grid(static_cast<unsigned>(x.heads), static_cast<unsigned>(x.by_query.part_count));
  start(forward<D>, grid, kThreads, sizeof(Shared<D>), stream, x, to);
}

template <int D>
std::int64_t places() {
  return places_of(forward<D>, kThreads, sizeof(Shared<D>));
}

}  // namespace

void attend_bf16(const Attention& x, const HeadRows& out, Stream stream) {
  if (x.dim <= 32)
    launch<32>(x, out, stream);
  else if (x.dim <= 64)
    launch<64>(x, out, stream);
  else
    launch<128>(x, out, stream);
  start(merge_rows<BaseTwo, kQueryBlock, float, Bf16>, merge_grid<kQueryBlock>(x.by_query, x.heads),
        kMergeThreads, 0, stream, x, out);
}

std::int64_t places_bf16(std::int64_t dim) {
  return dim <= 32 ? places<32>() : dim <= 64 ? places<64>() : places<128>();
}

}  // namespace troupe::kernels::gpu
