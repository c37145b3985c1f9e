// The decoder of Llama as the rest of the product sees it. Its fields have Hugging Face's names;
// the defaults make a small model that trains on a CPU.

#pragma once

#include <cstdint>

#include "models/family/family.hpp"

namespace troupe::models {

/// Layers: 0 token embedding, 1..num_hidden_layers blocks, num_hidden_layers+1 final norm and head.
struct LlmConfig {
  std::int32_t num_hidden_layers = 4;
  std::int32_t hidden_size = 128;
  std::int32_t intermediate_size = 352;
  std::int32_t num_attention_heads = 4;
  std::int32_t num_key_value_heads = 2;
  std::int32_t head_dim = 0;      ///< 0: hidden_size / num_attention_heads.
  std::int32_t vocab_size = 320;  ///< At least the tokenizer's.
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000;
  bool tie_word_embeddings = false;

  /// Columns of one head.
  std::int32_t head_width() const {
    return head_dim > 0 ? head_dim : hidden_size / num_attention_heads;
  }
  friend bool operator==(const LlmConfig&, const LlmConfig&) = default;
};

Family llama();  ///< Without `make` (models/built_in_layers.hpp).

}  // namespace troupe::models
