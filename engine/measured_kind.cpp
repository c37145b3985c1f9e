#include "engine/measured_kind.hpp"

namespace troupe::engine {

std::optional<AttentionShape> attention_of(const JobSetup& setup, const LayerKind& kind) {
  if (!kind.name.ends_with(".block")) return std::nullopt;
  const auto& module = config_of(setup, kind.example.module);
  if (const auto* c = std::get_if<VisionConfig>(&module.config))
    return AttentionShape{c->num_heads, c->num_heads, c->embed_dim / c->num_heads, false};
  if (const auto* c = std::get_if<AudioConfig>(&module.config))
    return AttentionShape{c->encoder_attention_heads, c->encoder_attention_heads,
                          c->d_model / c->encoder_attention_heads, false};
  const auto& c = std::get<LlmConfig>(module.config);
  return AttentionShape{c.num_attention_heads, c.num_key_value_heads,
                        c.head_dim > 0 ? c.head_dim : c.hidden_size / c.num_attention_heads, true};
}

}  // namespace troupe::engine
