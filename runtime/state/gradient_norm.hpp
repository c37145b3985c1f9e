// Norms of gradients, summed in a fixed order, and the clip factor that follows.
//
// For the engine and the reference run alike: one holder measures each chunk of a parameter group,
// the supervisor adds the squares in group order. Pure; deterministic to the bit for a given input,
// whatever the number of threads.

#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "runtime/vocabulary/model_state.hpp"

namespace troupe::state {

/// Squared 2-norm of a floating-point tensor of any shape and stride, in fp64. The order of the sum
/// is fixed (on a CPU eight interleaved lanes, added pairwise at the end; on a GPU that of its
/// kernel, on other devices LibTorch's). Undefined or empty: 0. A NaN or infinity in the tensor
/// gives NaN or infinity.
double squared_norm(const at::Tensor& tensor);

/// True if no element is NaN or infinite. Undefined or empty: true.
bool finite(const at::Tensor& tensor);

/// What PREPARED reports for one parameter group.
struct GradientMeasure {
  double squared_norm = 0;
  bool finite = true;
};

/// Measures a group's gradients, added in the order given; undefined ones count as zero.
GradientMeasure measure(std::span<const at::Tensor> gradients);

/// Measures a range of a group's flat gradients, of which `left_out` (ascending, disjoint) count in
/// no norm, but must be finite as well. Without any: `squared_norm` of the range, to the bit.
GradientMeasure measure_range(const at::Tensor& gradients, const IndexRange& range,
                              std::span<const IndexRange> left_out);

/// The numbers of `measure_range`, fp64 [2], where the gradients lie: nobody waits for the device
/// that computes them. To be read by `read_measure` when it has.
at::Tensor range_numbers(const at::Tensor& gradients, const IndexRange& range,
                         std::span<const IndexRange> left_out);

/// What such numbers say. REQUIRES: they are in host memory, and have arrived there.
GradientMeasure read_measure(const at::Tensor& numbers);

/// Global norm: root of the sum of the groups' squared norms, added in the order given.
double global_norm(std::span<const double> squared_norms);

/// What every gradient is multiplied with: min(1, norm_max / (norm + 1e-6)), as PyTorch's
/// clip_grad_norm_; exactly 1 where `norm_max` is 0 (no clipping). REQUIRES: norm finite.
double clip_factor(double norm, double norm_max);

}  // namespace troupe::state
