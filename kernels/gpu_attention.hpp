// Attention on a GPU under a bitfield mask, as an autograd function.
//
// Internal to kernels/.

#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "kernels/mask_tiles.hpp"

namespace troupe::kernels {

/// Whether there is a kernel of ours for such heads: on a GPU, in a build with CUDA, head sizes of
/// at most 256 (fp64: 128).
bool has_gpu_attention(const at::Tensor& query);

/// What `bitfield_attention` promises, but for bf16: products and weights are rounded to it, as
/// tensor cores take them; sums and softmax are fp32. Deterministic to the bit.
/// REQUIRES: has_gpu_attention(query); arguments that `check_heads` passes, at least one row.
at::Tensor gpu_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::shared_ptr<const MaskTiles>& tiles);

}  // namespace troupe::kernels
