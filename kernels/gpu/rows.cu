#include "kernels/gpu/rows.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/row_pieces.cuh"

namespace troupe::kernels::gpu {

namespace {

// --- RMSNorm: a thread block per row, backward per some rows. ---

template <int Count, class T>
__global__ void norm_forward(NormRows norm, WideOf<T> eps, T* out) {
  using W = WideOf<T>;
  const std::int64_t row = blockIdx.x, first = row * norm.width;
  const T* in = static_cast<const T*>(norm.in) + first;
  const T* weight = static_cast<const T*>(norm.weight);
  W sum = 0;
  along<Count>(norm.width, [&](std::int64_t i) {
    const auto x = read<Count>(in, i);
    for (int e = 0; e < Count; ++e) sum += widen(x.at[e]) * widen(x.at[e]);
  });
  sum = sum_over_block<kThreads>(sum);
  const W scale = 1 / sqrt(sum / static_cast<W>(norm.width) + eps);
  if (threadIdx.x == 0) static_cast<W*>(norm.scale)[row] = scale;
  along<Count>(norm.width, [&](std::int64_t i) {
    const auto x = read<Count>(in, i), w = read<Count>(weight, i);
    Piece<Count, T> y;
    for (int e = 0; e < Count; ++e)
      y.at[e] = narrow<T>(widen(narrow<T>(widen(x.at[e]) * scale)) * widen(w.at[e]));
    write<Count>(out + first, i, y);
  });
}

// Rows blockIdx.x, + gridDim.x, ...; what they add to the weight's gradient is summed in shared
// memory, each column by one thread.
template <int Count, class T>
__global__ void norm_backward(NormRows norm, const T* d_out, T* d_in, WideOf<T>* partial) {
  using W = WideOf<T>;
  extern __shared__ __align__(16) unsigned char room[];
  W* sums = reinterpret_cast<W*>(room);
  // Neighbours of a piece lie apart, those of neighbouring threads side by side: no bank twice.
  const std::int64_t pieces = norm.width / Count;
  const auto place = [pieces](std::int64_t i, int e) { return e * pieces + i / Count; };
  const T* weight = static_cast<const T*>(norm.weight);
  if (partial)
    along<Count>(norm.width, [&](std::int64_t i) {
      for (int e = 0; e < Count; ++e) sums[place(i, e)] = 0;
    });
  for (std::int64_t row = blockIdx.x; row < norm.rows; row += gridDim.x) {
    const std::int64_t first = row * norm.width;
    const T* in = static_cast<const T*>(norm.in) + first;
    const T* pushed = d_out + first;
    const W scale = static_cast<const W*>(norm.scale)[row];
    W sum = 0;
    along<Count>(norm.width, [&](std::int64_t i) {
      const auto x = read<Count>(in, i), w = read<Count>(weight, i), d = read<Count>(pushed, i);
      for (int e = 0; e < Count; ++e) {
        const W normalised = widen(x.at[e]) * scale;
        sum += widen(d.at[e]) * widen(w.at[e]) * normalised;
        if (partial) sums[place(i, e)] += widen(d.at[e]) * normalised;
      }
    });
    if (d_in == nullptr) continue;
    const W along_row = sum_over_block<kThreads>(sum) / static_cast<W>(norm.width);
    along<Count>(norm.width, [&](std::int64_t i) {
      const auto x = read<Count>(in, i), w = read<Count>(weight, i), d = read<Count>(pushed, i);
      Piece<Count, T> y;
      for (int e = 0; e < Count; ++e)
        y.at[e] = narrow<T>((widen(d.at[e]) * widen(w.at[e]) - widen(x.at[e]) * scale * along_row) *
                            scale);
      write<Count>(d_in + first, i, y);
    });
  }
  if (partial)
    along<Count>(norm.width, [&](std::int64_t i) {
      for (int e = 0; e < Count; ++e) partial[blockIdx.x * norm.width + i + e] = sums[place(i, e)];
    });
}

// --- Elements one by one. ---

template <int Count, class T>
__global__ void swiglu_forward(const T* gate, const T* up, T* out, std::int64_t count) {
  const std::int64_t at = thread_of_grid() * Count;
  if (at >= count) return;
  const auto g = read<Count>(gate, at), u = read<Count>(up, at);
  Piece<Count, T> y;
  for (int e = 0; e < Count; ++e) {
    const auto x = widen(g.at[e]);
    y.at[e] = narrow<T>(widen(narrow<T>(x * sigmoid(x))) * widen(u.at[e]));
  }
  write<Count>(out, at, y);
}

template <int Count, class T>
__global__ void swiglu_back(const T* gate, const T* up, const T* d_out, T* d_gate, T* d_up,
                            std::int64_t count) {
  const std::int64_t at = thread_of_grid() * Count;
  if (at >= count) return;
  const auto g = read<Count>(gate, at), u = read<Count>(up, at), d = read<Count>(d_out, at);
  Piece<Count, T> for_gate, for_up;
  for (int e = 0; e < Count; ++e) {
    const auto x = widen(g.at[e]), s = sigmoid(x);
    const auto pushed = widen(narrow<T>(widen(d.at[e]) * widen(u.at[e])));
    for_gate.at[e] = narrow<T>(pushed * s * (1 + x * (1 - s)));
    for_up.at[e] = narrow<T>(widen(narrow<T>(x * s)) * widen(d.at[e]));
  }
  if (d_gate) write<Count>(d_gate, at, for_gate);
  if (d_up) write<Count>(d_up, at, for_up);
}

template <class T>
__global__ void turn(TurnedHeads x, T* out) {
  using W = WideOf<T>;
  const std::int64_t at = thread_of_grid();
  if (at >= x.rows * x.heads * x.half) return;
  const std::int64_t j = at % x.half, head = at / x.half % x.heads, row = at / x.half / x.heads;
  const T* in = static_cast<const T*>(x.in.data) + row * x.in.row_stride + head * x.in.head_stride;
  const W c = static_cast<const W*>(x.cosine)[row * x.half + j];
  const W s = static_cast<const W*>(x.sine)[row * x.half + j] * static_cast<W>(x.sign);
  const W low = widen(in[j]), high = widen(in[j + x.half]);
  T* to = out + (row * x.heads + head) * 2 * x.half;
  to[j] = narrow<T>(low * c - high * s);
  to[j + x.half] = narrow<T>(high * c + low * s);
}

// --- Cross entropy: a thread block per row. ---

template <int Count, class T>
__global__ void entropy_forward(LogitRows x, WideOf<T>* losses) {
  using W = WideOf<T>;
  const std::int64_t row = blockIdx.x;
  const T* logits = static_cast<const T*>(x.logits) + row * x.width;
  // Each thread keeps the largest it saw and the sum of exponentials below it.
  W top = -infinity<W>(), total = 0;
  along<Count>(x.width, [&](std::int64_t i) {
    const auto piece = read<Count>(logits, i);
    W largest = top;
    for (int e = 0; e < Count; ++e) {
      const W value = widen(piece.at[e]);
      largest = value > largest ? value : largest;
    }
    if (largest > top) {
      total *= top == -infinity<W>() ? W{0} : exp(top - largest);
      top = largest;
    }
    const W base = top == -infinity<W>() ? W{0} : top;
    for (int e = 0; e < Count; ++e) total += exp(widen(piece.at[e]) - base);
  });
  const W of_row = top_over_block<kThreads>(top);
  // What is no number stays none.
  total = sum_over_block<kThreads>(total == 0 ? W{0} : total * exp(top - of_row));
  if (threadIdx.x != 0) return;
  const W log_total = of_row + log(total);
  static_cast<W*>(x.log_total)[row] = log_total;
  const std::int64_t target = x.targets[row];
  const bool there = target >= 0 && target < x.width;
  losses[row] = there ? log_total - widen(logits[target]) : static_cast<W>(__builtin_nan(""));
}

template <int Count, class T>
__global__ void entropy_backward(LogitRows x, const WideOf<T>* d_losses, T* d_logits) {
  using W = WideOf<T>;
  const std::int64_t row = blockIdx.x, target = x.targets[row];
  const T* logits = static_cast<const T*>(x.logits) + row * x.width;
  const W log_total = static_cast<const W*>(x.log_total)[row], d = d_losses[row];
  along<Count>(x.width, [&](std::int64_t i) {
    const auto piece = read<Count>(logits, i);
    Piece<Count, T> y;
    for (int e = 0; e < Count; ++e) {
      const W softmax = exp(widen(piece.at[e]) - log_total);
      y.at[e] = narrow<T>((i + e == target ? softmax - 1 : softmax) * d);
    }
    write<Count>(d_logits + row * x.width, i, y);
  });
}

}  // namespace

void rms_norm(const NormRows& norm, double eps, void* out, Stream stream) {
  in_pieces(
      norm.element, norm.width,
      [&](auto zero, auto count) {
        using T = decltype(zero);
        start(norm_forward<decltype(count)::value, T>, dim3(static_cast<unsigned>(norm.rows)),
              kThreads, 0, stream, norm, static_cast<WideOf<T>>(eps), static_cast<T*>(out));
      },
      norm.in, norm.weight, out);
}

void rms_norm_backward(const NormRows& norm, const void* d_out, void* d_in, void* d_weight,
                       void* partial, Stream stream) {
  const auto parts = std::min(norm.rows, kNormParts);
  in_pieces(
      norm.element, norm.width,
      [&](auto zero, auto count) {
        using T = decltype(zero);
        using W = WideOf<T>;
        W* sums = d_weight ? static_cast<W*>(partial) : nullptr;
        start(norm_backward<decltype(count)::value, T>, dim3(static_cast<unsigned>(parts)),
              kThreads, d_weight ? sizeof(W) * static_cast<std::size_t>(norm.width) : 0, stream,
              norm, static_cast<const T*>(d_out), static_cast<T*>(d_in), sums);
        if (d_weight)
          start(add_parts<T>, blocks_for(norm.width), kThreads, 0, stream,
                static_cast<const W*>(sums), parts, norm.width, static_cast<T*>(d_weight));
      },
      norm.in, norm.weight, d_out, d_in);
}

void swiglu(Element element, const void* gate, const void* up, void* out, std::int64_t count,
            Stream stream) {
  in_pieces(
      element, count,
      [&](auto zero, auto per) {
        using T = decltype(zero);
        start(swiglu_forward<decltype(per)::value, T>, blocks_for(count / per), kThreads, 0, stream,
              static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(out), count);
      },
      gate, up, out);
}

void swiglu_backward(Element element, const void* gate, const void* up, const void* d_out,
                     void* d_gate, void* d_up, std::int64_t count, Stream stream) {
  in_pieces(
      element, count,
      [&](auto zero, auto per) {
        using T = decltype(zero);
        start(swiglu_back<decltype(per)::value, T>, blocks_for(count / per), kThreads, 0, stream,
              static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<const T*>(d_out),
              static_cast<T*>(d_gate), static_cast<T*>(d_up), count);
      },
      gate, up, d_out, d_gate, d_up);
}

void rotate(const TurnedHeads& heads, void* out, Stream stream) {
  in_element(heads.element, [&](auto zero) {
    using T = decltype(zero);
    start(turn<T>, blocks_for(heads.rows * heads.heads * heads.half), kThreads, 0, stream, heads,
          static_cast<T*>(out));
  });
}

void cross_entropy(const LogitRows& rows, void* losses, Stream stream) {
  in_pieces(
      rows.element, rows.width,
      [&](auto zero, auto count) {
        using T = decltype(zero);
        start(entropy_forward<decltype(count)::value, T>, dim3(static_cast<unsigned>(rows.rows)),
              kThreads, 0, stream, rows, static_cast<WideOf<T>*>(losses));
      },
      rows.logits);
}

void cross_entropy_backward(const LogitRows& rows, const void* d_losses, void* d_logits,
                            Stream stream) {
  in_pieces(
      rows.element, rows.width,
      [&](auto zero, auto count) {
        using T = decltype(zero);
        start(entropy_backward<decltype(count)::value, T>, dim3(static_cast<unsigned>(rows.rows)),
              kThreads, 0, stream, rows, static_cast<const WideOf<T>*>(d_losses),
              static_cast<T*>(d_logits));
      },
      rows.logits, d_logits);
}

}  // namespace troupe::kernels::gpu
