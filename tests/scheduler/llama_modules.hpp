// Language models of published sizes, as a job file describes them.

#pragma once

#include <cstdint>

#include "models/llama/family.hpp"
#include "runtime/vocabulary/model_config.hpp"

namespace troupe::scheduler::testing {

/// With the heads and the vocabulary of Llama 3's 8B.
inline ModuleConfig llm(std::int32_t hidden, std::int32_t feed_forward, std::int32_t layers) {
  models::LlmConfig config;
  config.hidden_size = hidden;
  config.intermediate_size = feed_forward;
  config.num_hidden_layers = layers;
  config.num_attention_heads = 32;
  config.num_key_value_heads = 8;
  config.vocab_size = 128'256;
  ModuleConfig module;
  module.name = "llm";
  module.family = "llama";
  module.config = config;
  return module;
}

}  // namespace troupe::scheduler::testing
