// A head and its loss as one operator, which holds the logits of a chunk at a time: those of a
// whole part would take more than all else where the vocabulary is large.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/vocabulary/logit_chunks.hpp"

namespace troupe::kernels {

/// `cross_entropy_sums(linear(rows, weight), targets, counts)`: [samples], fp32 for bf16, else the
/// own type. rows: [targets, width]; weight: [vocabulary, width]; targets: int64 [targets].
///
/// Rows that fit into one chunk are computed just so: three products, and their logits are kept
/// until the backward. More rows take a fourth product, and nothing of the size of their logits is
/// kept or made:
/// - forward: by chunks of rows, the logits, their losses, and, where gradients of `rows` will be
///   wanted, these for a loss that counts once: it has to be known how much each counts only later;
/// - backward: gradients of `rows` are those, times what their losses count; in bf16 they are
///   rounded once more than those of whole logits;
/// - gradient of `weight`, in the backward or deferred (`DeferWeightGradients`), same bits: by
///   chunks of columns, the logits again and their share of the gradient. Every row of it is a
///   single sum over all rows, and so no wider or narrower than that of whole logits.
///
/// So a split backward hands its input gradient on at once and computes logits anew once;
/// recomputing them in the input gradient would do that twice. Where `weight` is frozen nothing is
/// computed anew.
///
/// Transient: of the logits of a chunk twice as much at most, in fp32 for bf16 on a CPU (on a GPU
/// once, in their own type); beside them a gradient of `weight`, as for `linear`.
/// Errors: as `cross_entropy_sums`.
at::Tensor projected_cross_entropy(const at::Tensor& rows, const at::Tensor& weight,
                                   const at::Tensor& targets,
                                   const std::vector<std::int64_t>& counts,
                                   const LogitChunks& chunks = {});

}  // namespace troupe::kernels
