#include "models/text_batch.hpp"

#include <utility>

#include "kernels/bitfield_attention.hpp"

namespace troupe::models {

Result<PackedBatch> text_batch(std::span<const TokenSample> samples, AttentionRule rule,
                               kernels::GpuLists lists) {
  PackedBatch batch;
  for (const auto& sample : samples) {
    batch.segments.push_back(sample.tokens);
    for (TokenCount place = 0; place < sample.tokens; ++place) batch.positions.push_back(place);
  }
  if (rule == AttentionRule::causal) return batch;
  auto mask = TokenMask::from_samples(samples);
  if (!mask.ok()) return std::move(mask).error();
  batch.mask = std::make_shared<const kernels::MaskTiles>(std::move(mask).value(),
                                                          kernels::kAttentionTiles, lists);
  return batch;
}

}  // namespace troupe::models
