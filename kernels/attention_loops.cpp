#include "kernels/attention_loops.hpp"

#include <algorithm>
#include <limits>

#include "runtime/vocabulary/cpu_clones.hpp"

namespace troupe::kernels::cpu {

namespace {

// Vectors of a level's registers; kVectors of them make a panel's row. Unaligned, since rows of an
// output may begin anywhere.
template <class T, int kBytes>
struct Registers {
  typedef T Vector __attribute__((vector_size(kBytes), aligned(sizeof(T)), may_alias));
  static constexpr int kVectors = 64 / kBytes;
  static constexpr int kLanes = kBytes / static_cast<int>(sizeof(T));

  static TROUPE_INLINE Vector load(const T* from) { return *reinterpret_cast<const Vector*>(from); }
  static TROUPE_INLINE void store(T* to, Vector value) { *reinterpret_cast<Vector*>(to) = value; }
  static TROUPE_INLINE Vector all(T value) { return Vector{} + value; }
};

template <class T>
TROUPE_INLINE void pack_rows_body(const HeadSlice<T>& from, T factor, std::int64_t padded_rows,
                                  T* __restrict to) {
  const auto dim = from.dim;
  for (std::int64_t row = 0; row < from.rows; ++row, to += dim) {
    const T* source = from.data + row * from.stride;
    for (std::int64_t d = 0; d < dim; ++d) to[d] = source[d] * factor;
  }
  std::fill_n(to, (padded_rows - from.rows) * dim, T(0));
}

template <class T>
TROUPE_INLINE void pack_panels_body(const HeadSlice<T>& from, T factor, std::int64_t padded_rows,
                                    T* __restrict to) {
  for (std::int64_t first = 0; first < from.dim; first += kPanel<T>) {
    const std::int64_t width = std::min(kPanel<T>, from.dim - first);
    const T* source = from.data + first;
    for (std::int64_t row = 0; row < from.rows; ++row, to += kPanel<T>, source += from.stride) {
      if (width == kPanel<T>) {
        for (std::int64_t d = 0; d < kPanel<T>; ++d) to[d] = source[d] * factor;
      } else {
        for (std::int64_t d = 0; d < kPanel<T>; ++d) to[d] = d < width ? source[d] * factor : T(0);
      }
    }
    to = std::fill_n(to, (padded_rows - from.rows) * kPanel<T>, T(0));
  }
}

template <class T>
TROUPE_INLINE void pack_transposed_body(const HeadSlice<T>& from, std::int64_t padded_rows,
                                        T* __restrict to) {
  for (std::int64_t first = 0; first < padded_rows; first += kPanel<T>) {
    const std::int64_t width = std::clamp<std::int64_t>(from.rows - first, 0, kPanel<T>);
    const T* source = from.data + first * from.stride;
    for (std::int64_t d = 0; d < from.dim; ++d, to += kPanel<T>) {
      if (width == kPanel<T>) {
        for (std::int64_t row = 0; row < kPanel<T>; ++row) to[row] = source[row * from.stride + d];
      } else {
        for (std::int64_t row = 0; row < kPanel<T>; ++row)
          to[row] = row < width ? source[row * from.stride + d] : T(0);
      }
    }
  }
}

template <class T>
TROUPE_INLINE void unpack_rows_body(const HeadSlice<T>& from, T factor, RowMatrix<T> to) {
  for (std::int64_t row = 0; row < from.rows; ++row) {
    const T* source = from.data + row * from.stride;
    T* __restrict target = to.data + row * to.stride;
    for (std::int64_t d = 0; d < from.dim; ++d) target[d] = source[d] * factor;
  }
}

// kRows rows of one panel of the output, held in registers over the whole depth.
template <class T, int kBytes, int kRows>
TROUPE_INLINE void product_tile(LeftMatrix<T> left, const T* right, RowMatrix<T> out,
                                std::int64_t depth, bool add) {
  using R = Registers<T, kBytes>;
  typename R::Vector sums[kRows][R::kVectors];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
    for (int v = 0; v < R::kVectors; ++v)
      sums[row][v] =
          add ? R::load(out.data + row * out.stride + v * R::kLanes) : typename R::Vector{};
  for (std::int64_t k = 0; k < depth; ++k, right += kPanel<T>) {
    const T* column = left.data + k * left.depth_stride;
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
      for (int v = 0; v < R::kVectors; ++v)
        sums[row][v] += column[row * left.row_stride] * R::load(right + v * R::kLanes);
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
    for (int v = 0; v < R::kVectors; ++v)
      R::store(out.data + row * out.stride + v * R::kLanes, sums[row][v]);
}

// A panel stays in the nearest cache while the strips pass.
template <class T, int kBytes, int kRows>
TROUPE_INLINE void product_body(LeftMatrix<T> left, PanelMatrix<T> right, RowMatrix<T> out,
                                ProductShape shape, bool add) {
  for (std::int64_t panel = 0; panel < shape.panels; ++panel)
    for (std::int64_t row = 0; row < shape.rows; row += kRows)
      product_tile<T, kBytes, kRows>(
          {left.data + row * left.row_stride, left.row_stride, left.depth_stride},
          right.data + panel * right.panel_stride,
          {out.data + row * out.stride + panel * kPanel<T>, out.stride}, shape.depth, add);
}

template <class T>
struct ExpParts;
template <>
struct ExpParts<float> {
  using Bits = std::int32_t;
  static constexpr float kShift = 0x1.8p23f;  // Adding it rounds to an integer in the low bits.
  static constexpr int kExponentBit = 23;
  static constexpr float kLeast = -125;  // Below, 2^x counts as 0: no denormal numbers.
  static constexpr int kTerms = 8;       // Of the series; the next one is below 2^-27.
};
template <>
struct ExpParts<double> {
  using Bits = std::int64_t;
  static constexpr double kShift = 0x1.8p52;
  static constexpr int kExponentBit = 52;
  static constexpr double kLeast = -1021;
  static constexpr int kTerms = 14;  // The next one is below 2^-57.
};

// Coefficients of 2^x at 0: ln(2)^k / k!.
struct ExpSeries {
  double term[14];

  constexpr ExpSeries() : term{} {
    constexpr double kLn2 = 0x1.62e42fefa39efp-1;
    double value = 1;
    for (int k = 0; k < 14; ++k) {
      term[k] = value;
      value *= kLn2 / (k + 1);
    }
  }
};
constexpr ExpSeries kExpSeries;

// 2^x for x <= 0 (and a little above): x is an integer and a rest of at most 1/2, whose series is
// added up; the integer goes straight into the exponent.
template <class T, int kBytes>
TROUPE_INLINE typename Registers<T, kBytes>::Vector exp2_of(
    typename Registers<T, kBytes>::Vector x) {
  using R = Registers<T, kBytes>;
  using Vector = typename R::Vector;
  using P = ExpParts<T>;
  typedef typename P::Bits Bits __attribute__((vector_size(kBytes), aligned(sizeof(T)), may_alias));
  const Vector least = R::all(P::kLeast), shift = R::all(P::kShift);
  const auto too_small = x < least;
  const Vector bounded = too_small ? least : x;
  const Vector shifted = bounded + shift;
  const Vector rest = bounded - (shifted - shift);
  Vector sum = R::all(static_cast<T>(kExpSeries.term[P::kTerms - 1]));
#pragma GCC unroll 14
  for (int k = P::kTerms - 2; k >= 0; --k)
    sum = sum * rest + R::all(static_cast<T>(kExpSeries.term[k]));
  const Vector power = (Vector)((Bits)sum + ((Bits)shifted << P::kExponentBit));
  return too_small ? Vector{} : power;
}

// Folds the lanes of a panel's row to one value, always pairing the same ones.
template <class T, int kBytes, class Fold>
TROUPE_INLINE T fold_lanes(const typename Registers<T, kBytes>::Vector* row, Fold fold) {
  using R = Registers<T, kBytes>;
  T lanes[kPanel<T>];
  for (int v = 0; v < R::kVectors; ++v) R::store(lanes + v * R::kLanes, row[v]);
  for (std::int64_t width = kPanel<T> / 2; width > 0; width /= 2)
    for (std::int64_t lane = 0; lane < width; ++lane)
      lanes[lane] = fold(lanes[lane], lanes[lane + width]);
  return lanes[0];
}

template <class T, int kBytes>
TROUPE_INLINE T largest_of(const T* scores, std::int64_t columns, T top) {
  using R = Registers<T, kBytes>;
  typename R::Vector largest[R::kVectors];
  for (int v = 0; v < R::kVectors; ++v) largest[v] = R::all(top);
  for (std::int64_t c = 0; c < columns; c += kPanel<T>)
    for (int v = 0; v < R::kVectors; ++v) {
      const auto value = R::load(scores + c + v * R::kLanes);
      largest[v] = value > largest[v] ? value : largest[v];
    }
  return fold_lanes<T, kBytes>(largest, [](T a, T b) { return a > b ? a : b; });
}

// scores become 2^(score - top); returns their sum.
template <class T, int kBytes>
TROUPE_INLINE T exp2_row(T* scores, std::int64_t columns, T top) {
  using R = Registers<T, kBytes>;
  typename R::Vector sums[R::kVectors] = {};
  for (std::int64_t c = 0; c < columns; c += kPanel<T>)
    for (int v = 0; v < R::kVectors; ++v) {
      T* at = scores + c + v * R::kLanes;
      const auto power = exp2_of<T, kBytes>(R::load(at) - R::all(top));
      R::store(at, power);
      sums[v] += power;
    }
  return fold_lanes<T, kBytes>(sums, [](T a, T b) { return a + b; });
}

template <class T, int kBytes>
TROUPE_INLINE void scale_row(T* row, std::int64_t columns, T factor) {
  using R = Registers<T, kBytes>;
  for (std::int64_t c = 0; c < columns; c += R::kLanes)
    R::store(row + c, R::load(row + c) * factor);
}

template <class T, int kBytes>
TROUPE_INLINE T exp2_one(T x) {
  return exp2_of<T, kBytes>(Registers<T, kBytes>::all(x))[0];
}

template <class T, int kBytes>
TROUPE_INLINE void online_softmax_body(const OnlineSoftmax<T>& step, std::int64_t rows) {
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  for (std::int64_t row = 0; row < rows; ++row) {
    T* scores = step.scores.data + row * step.scores.stride;
    const T old_top = step.top[row];
    const T top = largest_of<T, kBytes>(scores, step.columns, old_top);
    // Without any score so far, infinity - infinity must not come about.
    const T base = top == kNone ? T(0) : top;
    const T sum = exp2_row<T, kBytes>(scores, step.columns, base);
    if (top != old_top) {
      const T factor = exp2_one<T, kBytes>(old_top - base);
      step.total[row] *= factor;
      scale_row<T, kBytes>(step.out.data + row * step.out.stride, step.out_columns, factor);
      step.top[row] = top;
    }
    step.total[row] += sum;
  }
}

template <class T, int kBytes>
TROUPE_INLINE void softmax_gradient_body(const SoftmaxGradient<T>& step, std::int64_t rows) {
  using R = Registers<T, kBytes>;
  for (std::int64_t row = 0; row < rows; ++row) {
    T* scores = step.scores.data + row * step.scores.stride;
    T* d_weights = step.d_weights.data + row * step.d_weights.stride;
    const auto log_total = R::all(step.log_total[row]), pull = R::all(step.pull[row]);
    for (std::int64_t c = 0; c < step.columns; c += R::kLanes) {
      const auto weight = exp2_of<T, kBytes>(R::load(scores + c) - log_total);
      R::store(scores + c, weight);
      R::store(d_weights + c, weight * (R::load(d_weights + c) - pull));
    }
  }
}

// Wider registers hold more rows of a panel.
#define TROUPE_LEVEL_LOOPS(level, attribute, bytes, rows)                                         \
  namespace level {                                                                               \
  template <class T>                                                                              \
  attribute void pack_rows(const HeadSlice<T>& from, T factor, std::int64_t padded_rows, T* to) { \
    pack_rows_body<T>(from, factor, padded_rows, to);                                             \
  }                                                                                               \
  template <class T>                                                                              \
  attribute void pack_panels(const HeadSlice<T>& from, T factor, std::int64_t padded_rows,        \
                             T* to) {                                                             \
    pack_panels_body<T>(from, factor, padded_rows, to);                                           \
  }                                                                                               \
  template <class T>                                                                              \
  attribute void pack_transposed(const HeadSlice<T>& from, std::int64_t padded_rows, T* to) {     \
    pack_transposed_body<T>(from, padded_rows, to);                                               \
  }                                                                                               \
  template <class T>                                                                              \
  attribute void unpack_rows(const HeadSlice<T>& from, T factor, RowMatrix<T> to) {               \
    unpack_rows_body<T>(from, factor, to);                                                        \
  }                                                                                               \
  template <class T>                                                                              \
  attribute void product(LeftMatrix<T> left, PanelMatrix<T> right, RowMatrix<T> out,              \
                         ProductShape shape, bool add) {                                          \
    if (add)                                                                                      \
      product_body<T, bytes, rows>(left, right, out, shape, true);                                \
    else                                                                                          \
      product_body<T, bytes, rows>(left, right, out, shape, false);                               \
  }                                                                                               \
  template <class T>                                                                              \
  attribute void online_softmax(const OnlineSoftmax<T>& step, std::int64_t count) {               \
    online_softmax_body<T, bytes>(step, count);                                                   \
  }                                                                                               \
  template <class T>                                                                              \
  attribute void softmax_gradient(const SoftmaxGradient<T>& step, std::int64_t count) {           \
    softmax_gradient_body<T, bytes>(step, count);                                                 \
  }                                                                                               \
  template <class T>                                                                              \
  constexpr AttentionLoops<T> kLoops{pack_rows<T>,       pack_panels<T>, pack_transposed<T>,      \
                                     unpack_rows<T>,     product<T>,     online_softmax<T>,       \
                                     softmax_gradient<T>};                                        \
  }

TROUPE_LEVEL_LOOPS(plain, , 16, 2)
#ifdef TROUPE_LEVELS
TROUPE_LEVEL_LOOPS(v3, TROUPE_LEVEL("x86-64-v3"), 32, 4)
TROUPE_LEVEL_LOOPS(v4, TROUPE_LEVEL("x86-64-v4"), 64, 8)
#endif

}  // namespace

template <class T>
const AttentionLoops<T>& attention_loops([[maybe_unused]] int level) {
#ifdef TROUPE_LEVELS
  if (level >= 4) return v4::kLoops<T>;
  if (level == 3) return v3::kLoops<T>;
#endif
  return plain::kLoops<T>;
}

template const AttentionLoops<float>& attention_loops(int);
template const AttentionLoops<double>& attention_loops(int);

}  // namespace troupe::kernels::cpu
