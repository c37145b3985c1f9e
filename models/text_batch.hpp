// The lengths of a batch of the llm: what all its layers read of samples besides rows.
//
// Pure. Stages, reference runs, profiles and tests all begin here, so that none of them has other
// positions or another mask.

#pragma once

#include <span>

#include "kernels/mask_tiles.hpp"
#include "models/layer.hpp"
#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/token_mask.hpp"

namespace troupe::models {

/// Segments and positions of samples that are packed in this order, and under
/// `AttentionRule::modality` their mask, with what its tiles have for a GPU. Nothing else is
/// filled. Cost: O(tokens).
///
/// Errors:
/// - invalid_argument: by modality, as `TokenMask::from_samples`.
Result<PackedBatch> text_batch(std::span<const TokenSample> samples, AttentionRule rule,
                               kernels::GpuLists lists = kernels::GpuLists::none);

}  // namespace troupe::models
