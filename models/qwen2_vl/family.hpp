// The vision transformer of Qwen2-VL as the rest of the product sees it. Its fields have Hugging
// Face's names; the defaults make a small model that trains on a CPU.

#pragma once

#include <cstdint>

#include "models/family/family.hpp"

namespace troupe::models {

/// 2-D rotary positions and a merger of patches. Layers: 0 patch embedding, 1..depth blocks,
/// depth+1 merger.
struct VisionConfig {
  std::int32_t depth = 4;
  std::int32_t embed_dim = 64;
  std::int32_t num_heads = 4;  ///< embed_dim / num_heads is a multiple of 4.
  double mlp_ratio = 4;
  std::int32_t hidden_size = 128;  ///< Columns after the merger.
  std::int32_t patch_size = 14;
  std::int32_t spatial_merge_size = 2;
  std::int32_t temporal_patch_size = 2;
  std::int32_t in_channels = 3;

  friend bool operator==(const VisionConfig&, const VisionConfig&) = default;
};

Family qwen2_vl();

}  // namespace troupe::models
