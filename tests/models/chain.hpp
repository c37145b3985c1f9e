// Test helper: all layers of one module, run one after the other.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/factory.hpp"
#include "models/llama/family.hpp"
#include "models/mlp/family.hpp"
#include "models/qwen2_vl/family.hpp"
#include "models/whisper/family.hpp"

namespace troupe::models {

/// A module as the engine holds it: its layers, here all of them.
struct Chain {
  std::vector<std::unique_ptr<Layer>> layers;

  at::Tensor forward(const PackedBatch& batch, const at::Tensor& rows = {}) const {
    auto value = rows;
    for (const auto& layer : layers) value = layer->forward(value, batch);
    return value;
  }

  std::vector<Parameter> parameters() const {
    std::vector<Parameter> all;
    for (const auto& layer : layers)
      for (const auto& parameter : layer->parameters()) all.push_back(parameter);
    return all;
  }

  void clear_gradients() const {
    for (auto& parameter : parameters()) parameter.value.mutable_grad() = at::Tensor();
  }
};

/// REQUIRES: a valid model.
inline Chain make_chain(const ModuleConfig& module, const std::vector<ModuleConfig>& all,
                        const LayerOptions& options = {}) {
  const auto graph = build_graph(all).value();
  const auto count = graph.at(graph.find(module.name)).layers.size();
  Chain chain;
  for (std::size_t i = 0; i < count; ++i)
    chain.layers.push_back(
        std::move(make_layer(module, all, static_cast<int>(i), options)).value());
  return chain;
}

/// vision -> vision_projector -> llm <- audio_projector <- audio, small enough for tests.
inline std::vector<ModuleConfig> small_model() {
  VisionConfig vision{.depth = 2,
                      .embed_dim = 16,
                      .num_heads = 2,
                      .mlp_ratio = 2,
                      .hidden_size = 24,
                      .patch_size = 4};
  AudioConfig audio{.encoder_layers = 2,
                    .d_model = 16,
                    .encoder_attention_heads = 2,
                    .encoder_ffn_dim = 32,
                    .num_mel_bins = 8,
                    .max_source_positions = 50};
  LlmConfig llm{.num_hidden_layers = 2,
                .hidden_size = 24,
                .intermediate_size = 40,
                .num_attention_heads = 4,
                .num_key_value_heads = 2,
                .vocab_size = 37};
  const auto module = [](std::string name, ModuleKind kind, std::string family, std::string next,
                         auto config) {
    ModuleConfig result;
    result.name = std::move(name);
    result.kind = kind;
    result.family = std::move(family);
    result.next = std::move(next);
    result.initializer_range = 0.3;  // Large, so that every path through the model matters.
    result.config = config;
    return result;
  };
  return {module("vision", ModuleKind::encoder, "qwen2-vl", "vision_projector", vision),
          module("vision_projector", ModuleKind::projector, "mlp", "llm", ProjectorConfig{}),
          module("audio", ModuleKind::encoder, "whisper", "audio_projector", audio),
          module("audio_projector", ModuleKind::projector, "mlp", "llm", ProjectorConfig{}),
          module("llm", ModuleKind::llm, "llama", "", llm)};
}

}  // namespace troupe::models
