// Cross entropy of rows of logits and its gradient, row by row and without autograd: what both
// operators of the loss are made of. On GPUs one pass each (kernels/gpu/rows.hpp), else LibTorch's.
//
// Internal to kernels/.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace troupe::kernels {

/// Throws c10::ValueError unless there is a target for each row, beside it.
void check_targets(const at::Tensor& targets, const at::Tensor& rows);

/// Both [rows], fp64 for fp64 logits, else fp32.
struct LossRows {
  at::Tensor losses;
  at::Tensor log_total;  ///< log of the sum of exponentials.
};

/// logits: [rows, vocabulary]; targets: int64 [rows]. A target outside the vocabulary: c10::Error,
/// but on a GPU a loss that is no number.
LossRows loss_rows(const at::Tensor& logits, const at::Tensor& targets);

/// out = (softmax - one at the target) * d_losses, in the type of `out`, which may be `logits`.
///
/// logits: some columns of all, [rows, columns]; targets: counted from the first of these columns,
/// and anywhere outside where it is another column. log_total, d_losses: [rows] as `LossRows`;
/// d_losses undefined: ones.
void logit_gradients(const at::Tensor& logits, const at::Tensor& targets,
                     const at::Tensor& log_total, const at::Tensor& d_losses,
                     const at::Tensor& out);

/// A sum for each sample's rows: [samples]; samples without any have 0.
at::Tensor sums_of(const at::Tensor& losses, const std::vector<std::int64_t>& counts);

/// The gradient of each row's loss, in `type`: [rows].
at::Tensor by_row(const at::Tensor& d_sums, const std::vector<std::int64_t>& counts,
                  std::int64_t rows, at::ScalarType type);

}  // namespace troupe::kernels
