// The first step of a multimodal language model: token embeddings, with encoder rows in the places
// of their markers.

#pragma once

#include <ATen/core/Tensor.h>

namespace troupe::kernels {

/// weight[ids], except that row positions[i] is media[i].
///
/// ids: int64 [tokens]; weight: [vocabulary, width]; positions: int64 [media rows], all different,
/// or undefined; media: [media rows, width]. Ids at media positions are ignored, whatever they are.
/// Ids and positions lie on the host, or both with `weight`; on the host nobody waits for a device
/// to read them. A gradient of bf16 weights is summed in fp32 and rounded once. Throws c10::Error
/// for an id or position out of range.
at::Tensor embed_tokens(const at::Tensor& ids, const at::Tensor& weight,
                        const at::Tensor& positions = {}, const at::Tensor& media = {});

}  // namespace troupe::kernels
