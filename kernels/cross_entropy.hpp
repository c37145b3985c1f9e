// The training loss: cross-entropy of next tokens, summed per sample.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace troupe::kernels {

/// Which rows predict something, and what.
struct NextTokenTargets {
  at::Tensor rows;     ///< int64 [targets], ascending: row t predicts the label of row t + 1.
  at::Tensor targets;  ///< int64 [targets]: those labels.
  std::vector<std::int64_t> counts;  ///< Targets per sample; 0 is allowed.
};

/// Finds the rows whose following label in the same sample is not -100.
/// labels: int64 [rows]; samples: rows per sample. Both results lie on the labels' device.
NextTokenTargets next_token_targets(const at::Tensor& labels,
                                    const std::vector<std::int64_t>& samples);

/// -log softmax(logits)[target], summed over each sample's targets: [samples]. fp32 arithmetic and
/// result for bf16 logits, else the own type. logits: [targets, vocabulary].
/// A target outside the vocabulary: c10::Error, but on a GPU, where nothing waits for it, a sum
/// that is no number. Throws c10::ValueError for targets that are not one per row, beside them.
at::Tensor cross_entropy_sums(const at::Tensor& logits, const at::Tensor& targets,
                              const std::vector<std::int64_t>& counts);

/// rows[index], where no index repeats, so that the gradient is a plain scatter.
at::Tensor select_rows(const at::Tensor& rows, const at::Tensor& index);

}  // namespace troupe::kernels
