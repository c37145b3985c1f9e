// The audio encoder of Whisper as the rest of the product sees it. Its fields have Hugging Face's
// names; the defaults make a small model that trains on a CPU.

#pragma once

#include <cstdint>

#include "models/family/family.hpp"

namespace troupe::models {

/// Layers: 0 convolutions and positions, 1..encoder_layers blocks, encoder_layers+1 final norm.
struct AudioConfig {
  std::int32_t encoder_layers = 2;
  std::int32_t d_model = 64;
  std::int32_t encoder_attention_heads = 4;
  std::int32_t encoder_ffn_dim = 256;
  std::int32_t num_mel_bins = 80;
  std::int32_t max_source_positions = 1500;

  friend bool operator==(const AudioConfig&, const AudioConfig&) = default;
};

Family whisper();

}  // namespace troupe::models
