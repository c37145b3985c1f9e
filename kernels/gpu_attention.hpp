// Attention on a GPU under a bitfield mask, as an autograd function.
//
// Internal to kernels/.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "kernels/mask_tiles.hpp"

namespace troupe::kernels {

/// Whether there is a kernel of ours for such heads: on a GPU, in a build with CUDA, head sizes of
/// at most 256 (fp64: 128).
bool has_gpu_attention(const at::Tensor& query);

/// As many thread blocks as the GPU runs at once.
inline constexpr std::int64_t kAllPlaces = -1;

/// What `bitfield_attention` promises, but for bf16: products and weights are rounded to it, as
/// tensor cores take them; sums and softmax are fp32. Deterministic to the bit on GPUs of one kind:
/// what is cut, and so the order of sums, follows from the sizes and from how many thread blocks
/// run at once. `places`: so many instead; 0 cuts nothing (tests and measurements). Partial results
/// take memory while it runs: `balance_blocks` says how many at most.
/// REQUIRES: has_gpu_attention(query); arguments that `check_heads` passes, at least one row.
at::Tensor gpu_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::shared_ptr<const MaskTiles>& tiles,
                         std::int64_t places = kAllPlaces);

}  // namespace troupe::kernels
