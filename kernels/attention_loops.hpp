// The inner loops of blocked attention on a CPU: raw pointers, no LibTorch, chosen by instruction
// set. For float and double. Every sum has one order, whatever the vector width or thread count.
//
// Matrices that are multiplied from the right lie in panels: kPanel columns wide, one after the
// other, each with its rows end to end. Rows are computed in strips of kStrip.
//
// Internal to kernels/.

#pragma once

#include <cstdint>

namespace troupe::kernels::cpu {

/// Columns of a panel: one cache line.
template <class T>
inline constexpr std::int64_t kPanel = 64 / static_cast<std::int64_t>(sizeof(T));

inline constexpr std::int64_t kStrip = 8;

constexpr std::int64_t round_up(std::int64_t count, std::int64_t step) {
  return (count + step - 1) / step * step;
}

/// A left operand: element (row, k) is data[row * row_stride + k * depth_stride].
template <class T>
struct LeftMatrix {
  const T* data;
  std::int64_t row_stride;
  std::int64_t depth_stride;
};

/// A right operand in panels: element (k, column) is
/// data[column / kPanel * panel_stride + k * kPanel + column % kPanel].
template <class T>
struct PanelMatrix {
  const T* data;
  std::int64_t panel_stride;
};

/// Rows of elements, `stride` apart.
template <class T>
struct RowMatrix {
  T* data;
  std::int64_t stride;
};

struct ProductShape {
  std::int64_t rows;    ///< A multiple of kStrip.
  std::int64_t panels;  ///< Of the right operand.
  std::int64_t depth;   ///< Added up, in ascending order.
};

/// Rows of one head as they lie in a tensor, `stride` apart.
template <class T>
struct HeadSlice {
  const T* data;
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t dim;
};

/// One step of an online softmax in base 2 over `columns` (a multiple of kPanel) more scores of
/// each row: scores become 2^(score - top), total and out are scaled to the new top, and total
/// grows. A score of -infinity counts for nothing; a row that saw no other keeps top = -infinity
/// and total 0.
template <class T>
struct OnlineSoftmax {
  RowMatrix<T> scores;
  std::int64_t columns;  ///< A multiple of kPanel.
  T* top;                ///< Largest score so far, by row.
  T* total;              ///< Sum of 2^(score - top) so far, by row.
  RowMatrix<T> out;
  std::int64_t out_columns;  ///< A multiple of kPanel.
};

/// Scores and the gradients of weights, and by row what a softmax's gradient needs of the others.
template <class T>
struct SoftmaxGradient {
  RowMatrix<T> scores;
  RowMatrix<T> d_weights;
  std::int64_t columns;  ///< A multiple of kPanel.
  const T* log_total;    ///< Logarithm in base 2 of the sum of 2^score; infinity for no score.
  const T* pull;         ///< Sum of weight * d_weight.
};

/// The loops for one level of instruction sets.
template <class T>
struct AttentionLoops {
  /// Rows times factor end to end, and rows of zeros up to `padded_rows`: a left operand.
  void (*pack_rows)(const HeadSlice<T>& from, T factor, std::int64_t padded_rows, T* to);
  /// The same as a right operand, each panel with `padded_rows` rows.
  void (*pack_panels)(const HeadSlice<T>& from, T factor, std::int64_t padded_rows, T* to);
  /// Transposed, as a right operand: panels of rows, each `dim` deep. padded_rows: as above, a
  /// multiple of kPanel.
  void (*pack_transposed)(const HeadSlice<T>& from, std::int64_t padded_rows, T* to);
  /// to = from * factor: rows as they lie in a tensor again.
  void (*unpack_rows)(const HeadSlice<T>& from, T factor, RowMatrix<T> to);
  /// out = left * right, or out += with `add`.
  void (*product)(LeftMatrix<T> left, PanelMatrix<T> right, RowMatrix<T> out, ProductShape shape,
                  bool add);
  /// Scores become 2^(score - top), total and out are scaled to the new top, and total grows. A
  /// score of -infinity counts for nothing; a row of no other keeps top = -infinity, total = 0.
  void (*online_softmax)(const OnlineSoftmax<T>& step, std::int64_t rows);
  /// Scores become weights 2^(score - log_total), d_weights become weight * (d_weight - pull).
  void (*softmax_gradient)(const SoftmaxGradient<T>& step, std::int64_t rows);
};

/// The fastest for a level of `cpu_level`; may be asked for a lower one than the machine's.
template <class T>
const AttentionLoops<T>& attention_loops(int level);

}  // namespace troupe::kernels::cpu
