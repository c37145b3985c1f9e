// Attention over packed segments: rows of one segment see only each other, and the cost is that of
// the segments, not of the square of the pack.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace troupe::kernels {

/// softmax(q k^T / sqrt(head_dim)) v within each segment.
///
/// query: [rows, heads, head_dim]; key, value: [rows, kv_heads, head_dim], where query head j reads
/// key head j / (heads / kv_heads). segments: rows per segment, all > 0, adding up to rows. causal:
/// a row sees its segment's rows up to itself; otherwise all of them. Returns [rows, heads,
/// head_dim]. Softmax in fp32 for bf16, else in the own type. Deterministic to the bit; on
/// a GPU where LibTorch is told to be (`setDeterministicAlgorithms`), as the engine does.
/// Cost: sum of segment^2 * heads * head_dim time, memory linear in rows.
at::Tensor packed_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const std::vector<std::int64_t>& segments, bool causal);

}  // namespace troupe::kernels
