// Attention under a bitfield mask (Cornstarch section 3.4.2) that computes no more than the mask
// leaves: tiles of keys that a block of queries sees nothing of are skipped.

#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "kernels/mask_tiles.hpp"

namespace troupe::kernels {

/// Shape of tiles that `bitfield_attention` is fastest with on a CPU (scripts/bench attention).
inline constexpr BlockShape kAttentionTiles{.block = 128, .tile = 128};

/// softmax(q k^T / sqrt(head_dim)) v over the keys that each row sees.
///
/// query: [rows, heads, head_dim]; key, value: [rows, kv_heads, head_dim], where query head j reads
/// key head j / (heads / kv_heads); fp32, bf16 or fp64, any strides. tiles: of the pack's mask,
/// worked out once for all layers; blocks a multiple of 8, tiles of 16; kept until backward.
/// Returns [rows, heads, head_dim]. A row that sees nothing is 0 and takes no gradient. bf16 is
/// computed in fp32 and rounded once on a CPU; a GPU's tensor cores take weights rounded to it, and
/// sum in fp32. Deterministic to the bit, whatever the number of threads; backward uses at most one
/// per query head. A number that is not finite may spread within a tile. Cost: time follows the
/// pairs that see each other, memory is linear in rows; but devices without a kernel of ours
/// (`has_gpu_attention`) run `dense_attention`.
///
/// Errors (c10::ValueError): shapes or types that do not fit each other or the mask, or such tiles.
at::Tensor bitfield_attention(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, std::shared_ptr<const MaskTiles> tiles);

}  // namespace troupe::kernels
