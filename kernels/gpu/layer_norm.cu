#include <algorithm>

#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/row_pieces.cuh"

namespace troupe::kernels::gpu {

namespace {

// A thread block per row. The variance is that of differences from the mean: one pass with sums of
// squares would lose it where the mean is large.
template <int Count, class T>
__global__ void norm_forward(LayerNormRows norm, WideOf<T> eps, T* out) {
  using W = WideOf<T>;
  const std::int64_t row = blockIdx.x, first = row * norm.width;
  const T* in = static_cast<const T*>(norm.in) + first;
  const T* weight = static_cast<const T*>(norm.weight);
  const T* bias = static_cast<const T*>(norm.bias);
  W sum = 0, squares = 0;
  along<Count>(norm.width, [&](std::int64_t i) {
    const auto x = read<Count>(in, i);
    for (int e = 0; e < Count; ++e) sum += widen(x.at[e]);
  });
  const W mean = sum_over_block<kThreads>(sum) / static_cast<W>(norm.width);
  along<Count>(norm.width, [&](std::int64_t i) {
    const auto x = read<Count>(in, i);
    for (int e = 0; e < Count; ++e) squares += (widen(x.at[e]) - mean) * (widen(x.at[e]) - mean);
  });
  squares = sum_over_block<kThreads>(squares);
  const W scale = 1 / sqrt(squares / static_cast<W>(norm.width) + eps);
  if (threadIdx.x == 0) {
    static_cast<W*>(norm.mean)[row] = mean;
    static_cast<W*>(norm.scale)[row] = scale;
  }
  along<Count>(norm.width, [&](std::int64_t i) {
    const auto x = read<Count>(in, i), w = read<Count>(weight, i), b = read<Count>(bias, i);
    Piece<Count, T> y;
    for (int e = 0; e < Count; ++e)
      y.at[e] = narrow<T>((widen(x.at[e]) - mean) * scale * widen(w.at[e]) + widen(b.at[e]));
    write<Count>(out + first, i, y);
  });
}

// Rows blockIdx.x, + gridDim.x, ...; what they add to the gradients of weight and bias is summed in
// shared memory, each column by one thread. `partial`: [2, kNormParts, width], the weight's first.
template <int Count, class T>
__global__ void norm_backward(LayerNormRows norm, const T* d_out, T* d_in, WideOf<T>* partial) {
  using W = WideOf<T>;
  extern __shared__ __align__(16) unsigned char room[];
  W* for_weight = reinterpret_cast<W*>(room);
  W* for_bias = for_weight + norm.width;
  // Neighbours of a piece lie apart, those of neighbouring threads side by side: no bank twice.
  const std::int64_t pieces = norm.width / Count;
  const auto place = [pieces](std::int64_t i, int e) { return e * pieces + i / Count; };
  const T* weight = static_cast<const T*>(norm.weight);
  if (partial)
    along<Count>(norm.width, [&](std::int64_t i) {
      for (int e = 0; e < Count; ++e) for_weight[place(i, e)] = for_bias[place(i, e)] = 0;
    });
  for (std::int64_t row = blockIdx.x; row < norm.rows; row += gridDim.x) {
    const std::int64_t first = row * norm.width;
    const T* in = static_cast<const T*>(norm.in) + first;
    const T* pushed = d_out + first;
    const W mean = static_cast<const W*>(norm.mean)[row];
    const W scale = static_cast<const W*>(norm.scale)[row];
    W sum = 0, sum_along = 0;
    along<Count>(norm.width, [&](std::int64_t i) {
      const auto x = read<Count>(in, i), w = read<Count>(weight, i), d = read<Count>(pushed, i);
      for (int e = 0; e < Count; ++e) {
        const W normalised = (widen(x.at[e]) - mean) * scale;
        sum += widen(d.at[e]) * widen(w.at[e]);
        sum_along += widen(d.at[e]) * widen(w.at[e]) * normalised;
        if (!partial) continue;
        for_weight[place(i, e)] += widen(d.at[e]) * normalised;
        for_bias[place(i, e)] += widen(d.at[e]);
      }
    });
    if (d_in == nullptr) continue;
    const W level = sum_over_block<kThreads>(sum) / static_cast<W>(norm.width);
    const W along_row = sum_over_block<kThreads>(sum_along) / static_cast<W>(norm.width);
    along<Count>(norm.width, [&](std::int64_t i) {
      const auto x = read<Count>(in, i), w = read<Count>(weight, i), d = read<Count>(pushed, i);
      Piece<Count, T> y;
      for (int e = 0; e < Count; ++e) {
        const W normalised = (widen(x.at[e]) - mean) * scale;
        y.at[e] =
            narrow<T>((widen(d.at[e]) * widen(w.at[e]) - level - normalised * along_row) * scale);
      }
      write<Count>(d_in + first, i, y);
    });
  }
  if (partial)
    along<Count>(norm.width, [&](std::int64_t i) {
      for (int e = 0; e < Count; ++e) {
        const std::int64_t at = blockIdx.x * norm.width + i + e;
        partial[at] = for_weight[place(i, e)];
        partial[kNormParts * norm.width + at] = for_bias[place(i, e)];
      }
    });
}

}  // namespace

void layer_norm(const LayerNormRows& norm, double eps, void* out, Stream stream) {
  in_pieces(
      norm.element, norm.width,
      [&](auto zero, auto count) {
        using T = decltype(zero);
        start(norm_forward<decltype(count)::value, T>, dim3(static_cast<unsigned>(norm.rows)),
              kThreads, 0, stream, norm, static_cast<WideOf<T>>(eps), static_cast<T*>(out));
      },
      norm.in, norm.weight, norm.bias, out);
}

void layer_norm_backward(const LayerNormRows& norm, const void* d_out, void* d_in, void* d_weight,
                         void* d_bias, void* partial, Stream stream) {
  const auto parts = std::min(norm.rows, kNormParts);
  in_pieces(
      norm.element, norm.width,
      [&](auto zero, auto count) {
        using T = decltype(zero);
        using W = WideOf<T>;
        const bool has_sums = d_weight != nullptr || d_bias != nullptr;
        W* sums = has_sums ? static_cast<W*>(partial) : nullptr;
        const auto room = has_sums ? 2 * sizeof(W) * static_cast<std::size_t>(norm.width) : 0;
        start(norm_backward<decltype(count)::value, T>, dim3(static_cast<unsigned>(parts)),
              kThreads, room, stream, norm, static_cast<const T*>(d_out), static_cast<T*>(d_in),
              sums);
        const auto add = [&](const W* from, void* to) {
          if (to != nullptr)
            start(add_parts<T>, blocks_for(norm.width), kThreads, 0, stream, from, parts,
                  norm.width, static_cast<T*>(to));
        };
        add(sums, d_weight);
        add(has_sums ? sums + kNormParts * norm.width : nullptr, d_bias);
      },
      norm.in, norm.weight, d_out, d_in);
}

}  // namespace troupe::kernels::gpu
