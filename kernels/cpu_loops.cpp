#include "kernels/cpu_loops.hpp"

#include <cmath>

#include "runtime/vocabulary/cpu_clones.hpp"

namespace troupe::kernels::cpu {

namespace {

// Independent partial sums: lets the compiler use vector registers without reordering at will, so
// that the order of addition is the same for every instruction set.
constexpr std::int64_t kLanes = 16;

template <class T, class Term>
TROUPE_INLINE T sum_lanes(std::int64_t count, Term term) {
  T partial[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) partial[lane] += term(i + lane);
  T total = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) total += partial[lane];
  for (; i < count; ++i) total += term(i);
  return total;
}

template <class T>
TROUPE_INLINE void rotate_body(const T* in, const T* cosine, const T* sine, T sign,
                               HeadsShape shape, T* __restrict out) {
  const auto half = shape.half;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const T* c = cosine + row * half;
    const T* s = sine + row * half;
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const T* low = in + row * shape.row_stride + head * shape.head_stride;
      const T* high = low + half;
      for (std::int64_t j = 0; j < half; ++j) {
        const T turn = sign * s[j];
        out[j] = low[j] * c[j] - high[j] * turn;
        out[half + j] = high[j] * c[j] + low[j] * turn;
      }
      out += 2 * half;
    }
  }
}

template <class T>
TROUPE_INLINE void rms_norm_body(const T* in, const T* weight, T eps, std::int64_t rows,
                                 std::int64_t width, T* scale, T* __restrict out) {
  for (std::int64_t row = 0; row < rows; ++row, in += width, out += width) {
    const T squares = sum_lanes<T>(width, [&](std::int64_t i) { return in[i] * in[i]; });
    const T factor = T(1) / std::sqrt(squares / static_cast<T>(width) + eps);
    scale[row] = factor;
    for (std::int64_t i = 0; i < width; ++i) out[i] = in[i] * factor * weight[i];
  }
}

template <class T>
TROUPE_INLINE void rms_norm_backward_body(const T* d_out, const T* in, const T* weight,
                                          const T* scale, std::int64_t rows, std::int64_t width,
                                          T* __restrict d_in, T* __restrict d_weight) {
  for (std::int64_t row = 0; row < rows; ++row, in += width, d_out += width) {
    const T factor = scale[row];
    if (d_weight)
      for (std::int64_t i = 0; i < width; ++i) d_weight[i] += d_out[i] * (in[i] * factor);
    if (!d_in) continue;
    // d in = scale * (w d - in * scale^2 * mean(w d in)).
    const T product =
        sum_lanes<T>(width, [&](std::int64_t i) { return d_out[i] * weight[i] * in[i]; });
    const T pull = product * factor * factor / static_cast<T>(width);
    T* to = d_in + row * width;
    for (std::int64_t i = 0; i < width; ++i) to[i] = factor * (d_out[i] * weight[i] - in[i] * pull);
  }
}

}  // namespace

#define TROUPE_LOOPS(T)                                                                            \
  TROUPE_CLONES void rotate(const T* in, const T* cosine, const T* sine, T sign, HeadsShape shape, \
                            T* out) {                                                              \
    rotate_body<T>(in, cosine, sine, sign, shape, out);                                            \
  }                                                                                                \
  TROUPE_CLONES void rms_norm(const T* in, const T* weight, T eps, std::int64_t rows,              \
                              std::int64_t width, T* scale, T* out) {                              \
    rms_norm_body<T>(in, weight, eps, rows, width, scale, out);                                    \
  }                                                                                                \
  TROUPE_CLONES void rms_norm_backward(const T* d_out, const T* in, const T* weight,               \
                                       const T* scale, std::int64_t rows, std::int64_t width,      \
                                       T* d_in, T* d_weight) {                                     \
    rms_norm_backward_body<T>(d_out, in, weight, scale, rows, width, d_in, d_weight);              \
  }

TROUPE_LOOPS(float)
TROUPE_LOOPS(double)

}  // namespace troupe::kernels::cpu
