#include "engine/profiling/measured_attention.hpp"

#include <utility>

#include "kernels/bitfield_attention.hpp"
#include "kernels/packed_attention.hpp"

namespace troupe::engine {

namespace {

std::shared_ptr<const kernels::MaskTiles> mask_of(const std::vector<std::int64_t>& segments,
                                                  bool causal, kernels::GpuLists lists) {
  std::vector<TokenSample> samples;
  for (const auto length : segments) {
    samples.push_back({length, {}});
    if (!causal) samples.back().spans = {{0, length}};
  }
  return std::make_shared<const kernels::MaskTiles>(TokenMask::from_samples(samples).value(),
                                                    kernels::kAttentionTiles, lists);
}

}  // namespace

MeasuredAttention::MeasuredAttention(const AttentionShape& shape,
                                     std::vector<std::int64_t> segments, bool causal,
                                     kernels::GpuLists lists)
    : segments_(std::move(segments)),
      causal_(causal),
      mask_(shape.by_modality ? mask_of(segments_, causal, lists) : nullptr) {}

at::Tensor MeasuredAttention::operator()(const std::array<at::Tensor, 3>& inputs) const {
  const auto& [query, key, value] = inputs;
  return mask_ ? kernels::bitfield_attention(query, key, value, mask_)
               : kernels::packed_attention(query, key, value, segments_, causal_);
}

}  // namespace troupe::engine
