// The decoder of Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU; a head that is
// its own matrix or the embedding's. Positions are 1-D and restart per sample; attention is causal
// over everything in the sample, encoder rows included.
//
// Shapes: T tokens, E hidden_size, H query heads, K key heads, D head_dim, V vocabulary.

#include "models/llama.hpp"

#include <ATen/ops/cat.h>

#include "kernels/activations.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/linear.hpp"
#include "kernels/norms.hpp"
#include "kernels/packed_attention.hpp"
#include "kernels/token_embedding.hpp"
#include "models/batch_cache.hpp"
#include "models/family.hpp"

namespace troupe::models {

namespace {

std::int64_t head_dim(const LlmConfig& config) {
  return config.head_dim > 0 ? config.head_dim : config.hidden_size / config.num_attention_heads;
}

class TokenEmbedding : public ParameterLayer {
 public:
  using ParameterLayer::ParameterLayer;

  at::Tensor forward(const at::Tensor&, const PackedBatch& batch) override {
    const auto& weight = (*this)[0];
    std::vector<at::Tensor> positions, rows;
    for (const auto& media : batch.media) {
      if (media.rows.size(0) == 0) continue;
      positions.push_back(media.positions.to(weight.device()));
      rows.push_back(media.rows);
    }
    const auto ids = batch.input.to(weight.device());
    if (rows.empty()) return kernels::embed_tokens(ids, weight);
    return kernels::embed_tokens(ids, weight, at::cat(positions), at::cat(rows));
  }
};

class DecoderBlock : public ParameterLayer {
 public:
  DecoderBlock(const LlmConfig& config, std::vector<Parameter> parameters)
      : ParameterLayer(std::move(parameters)), config_(config) {}

  at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) override {
    const auto& self = *this;
    const auto eps = config_.rms_norm_eps;
    const auto attended = rows.add(attend(kernels::rms_norm(rows, self[kNorm1], eps), batch));
    const auto normed = kernels::rms_norm(attended, self[kNorm2], eps);
    const auto unit =
        kernels::swiglu(kernels::linear(normed, self[kGate]), kernels::linear(normed, self[kUp]));
    return attended.add(kernels::linear(unit, self[kDown]));
  }

 private:
  enum : int { kQuery, kKey, kValue, kOut, kGate, kUp, kDown, kNorm1, kNorm2 };

  at::Tensor attend(const at::Tensor& rows, const PackedBatch& batch) const {
    const auto& self = *this;
    const auto dim = head_dim(config_);
    const RotaryConfig rotary{dim, config_.rope_theta, rows.scalar_type(), rows.device()};
    const auto& table = text_rotary(batch, rotary);
    const auto project = [&](int weight) {
      return kernels::linear(rows, self[weight])
          .view({rows.size(0), self[weight].size(0) / dim, dim});
    };
    const auto out = kernels::packed_attention(kernels::rotate(project(kQuery), table),
                                               kernels::rotate(project(kKey), table),
                                               project(kValue), batch.segments, /*causal=*/true);
    return kernels::linear(out.flatten(1), self[kOut]);
  }

  LlmConfig config_;
};

class Head : public ParameterLayer {
 public:
  Head(const LlmConfig& config, std::vector<Parameter> parameters)
      : ParameterLayer(std::move(parameters)), eps_(config.rms_norm_eps) {}

  // Norm and logits are computed for the rows that predict something, which saves most of the work
  // where prompts and media are long.
  at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) override {
    const auto next = kernels::next_token_targets(batch.labels, batch.segments);
    const auto chosen = kernels::select_rows(rows, next.rows.to(rows.device()));
    return kernels::cross_entropy_sums(logits(chosen), next.targets.to(rows.device()), next.counts);
  }

  at::Tensor logits(const at::Tensor& rows) const {
    return kernels::linear(kernels::rms_norm(rows, (*this)[0], eps_), (*this)[1]);
  }

 private:
  double eps_;
};

LayerDescription describe_block(const std::string& name, const LlmConfig& config) {
  const std::int64_t width = config.hidden_size, inner = config.intermediate_size;
  const auto dim = head_dim(config);
  LayerDescription block{name, {}};
  const auto matrix = [&](const char* part, std::int64_t out, std::int64_t in) {
    block.parameters.push_back({name + part, {out, in}, Initial::normal});
  };
  matrix(".self_attn.q_proj.weight", config.num_attention_heads * dim, width);
  matrix(".self_attn.k_proj.weight", config.num_key_value_heads * dim, width);
  matrix(".self_attn.v_proj.weight", config.num_key_value_heads * dim, width);
  matrix(".self_attn.o_proj.weight", width, config.num_attention_heads * dim);
  matrix(".mlp.gate_proj.weight", inner, width);
  matrix(".mlp.up_proj.weight", inner, width);
  matrix(".mlp.down_proj.weight", width, inner);
  for (const auto* norm : {".input_layernorm.weight", ".post_attention_layernorm.weight"})
    block.parameters.push_back({name + norm, {width}, Initial::ones});
  return block;
}

std::optional<Error> check(const ModuleConfig& module, const LlmConfig& config) {
  if (config.num_hidden_layers < 1 || config.hidden_size < 1 || config.intermediate_size < 1 ||
      config.num_attention_heads < 1 || config.num_key_value_heads < 1 || config.vocab_size < 1 ||
      config.head_dim < 0 || !(config.rms_norm_eps > 0) || !(config.rope_theta > 0))
    return config_error(module, "config", "every size of a decoder must be at least 1",
                        "correct the sizes in this table");
  if (config.num_attention_heads % config.num_key_value_heads != 0)
    return config_error(module, "config.num_key_value_heads",
                        "num_attention_heads " + std::to_string(config.num_attention_heads) +
                            " must be a multiple of num_key_value_heads " +
                            std::to_string(config.num_key_value_heads),
                        "choose a divisor of num_attention_heads");
  if (config.head_dim == 0 && config.hidden_size % config.num_attention_heads != 0)
    return config_error(module, "config.num_attention_heads",
                        "hidden_size " + std::to_string(config.hidden_size) +
                            " must be a multiple of num_attention_heads " +
                            std::to_string(config.num_attention_heads),
                        "choose a divisor of hidden_size, or give head_dim");
  if (head_dim(config) % 2 != 0)
    return config_error(module, "config.head_dim",
                        "the head dimension " + std::to_string(head_dim(config)) +
                            " must be even, because rotary positions turn pairs",
                        "choose an even head_dim");
  return {};
}

Result<ModuleDescription> describe(const ModuleConfig& module, const std::vector<ModuleConfig>&) {
  const auto& config = std::get<LlmConfig>(module.config);
  if (auto error = check(module, config)) return *error;
  const std::int64_t width = config.hidden_size;
  const auto &name = module.name, model = name + ".model.";
  const ParameterSpec embedding{
      model + "embed_tokens.weight", {config.vocab_size, width}, Initial::normal};
  ModuleDescription result{{}, width, 0};
  result.layers.push_back({name + ".embed_tokens", {embedding}});
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    const auto number = "layers." + std::to_string(i);
    result.layers.push_back(describe_block(model + number, config));
    result.layers.back().name = name + "." + number;
  }
  auto head = embedding;
  if (config.tie_word_embeddings)
    head.tied_use = true;
  else
    head.name = name + ".lm_head.weight";
  result.layers.push_back(
      {name + ".head", {{model + "norm.weight", {width}, Initial::ones}, std::move(head)}});
  return result;
}

std::unique_ptr<Layer> make(const ModuleConfig& module, int index,
                            std::vector<Parameter> parameters) {
  const auto& config = std::get<LlmConfig>(module.config);
  if (index == 0) return std::make_unique<TokenEmbedding>(std::move(parameters));
  if (index > config.num_hidden_layers)
    return std::make_unique<Head>(config, std::move(parameters));
  return std::make_unique<DecoderBlock>(config, std::move(parameters));
}

}  // namespace

at::Tensor head_logits(Layer& head, const at::Tensor& rows) {
  return dynamic_cast<Head&>(head).logits(rows);
}

const Family kLlama{"llama", ModuleKind::llm, 3, describe, make};

}  // namespace troupe::models
