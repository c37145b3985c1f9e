// Attention under a bitfield mask by its definition, with every score in memory: what faster
// versions are compared with, and what a device without one of its own runs.

#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/vocabulary/token_mask.hpp"

namespace troupe::kernels {

/// softmax(q k^T / sqrt(head_dim)) v over the keys that each row sees.
///
/// query: [rows, heads, head_dim]; key, value: [rows, kv_heads, head_dim], where query head j reads
/// key head j / (heads / kv_heads); fp32, bf16 or fp64, any strides. Returns [rows, heads,
/// head_dim]. A row that sees nothing is 0 and takes no gradient. bf16 is computed in fp32 and
/// rounded once. Cost: rows^2 * heads * head_dim time, rows^2 * heads memory, kept for backward.
///
/// Errors (c10::ValueError): shapes or types that do not fit each other or the mask.
at::Tensor dense_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const TokenMask& mask);

}  // namespace troupe::kernels
