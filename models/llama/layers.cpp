// The decoder of Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU; a head that is
// its own matrix or the embedding's. Positions are 1-D and restart per sample. Attention is causal
// over everything in the sample, encoder rows included; or, by modality, text is causal and a span
// of encoder rows sees itself alone (Cornstarch section 3.4.2).
//
// Shapes: T tokens, E hidden_size, H query heads, K key heads, D head_dim, V vocabulary.

#include <ATen/ops/cat.h>
#include <c10/util/Exception.h>

#include "kernels/activations.hpp"
#include "kernels/bitfield_attention.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/device_copies.hpp"
#include "kernels/linear.hpp"
#include "kernels/norms.hpp"
#include "kernels/packed_attention.hpp"
#include "kernels/projected_cross_entropy.hpp"
#include "kernels/token_embedding.hpp"
#include "models/batch_cache.hpp"
#include "models/built_in_layers.hpp"
#include "models/llama/family.hpp"
#include "models/llama_logits.hpp"
#include "models/parameter_layer.hpp"

namespace troupe::models {

namespace {

class TokenEmbedding : public ParameterLayer {
 public:
  using ParameterLayer::ParameterLayer;

  at::Tensor forward(const at::Tensor&, const PackedBatch& batch) override {
    const auto& weight = (*this)[0];
    std::vector<at::Tensor> positions, rows;
    for (const auto& media : batch.media) {
      if (media.rows.size(0) == 0) continue;
      positions.push_back(media.positions);
      rows.push_back(media.rows);
    }
    if (rows.empty()) return kernels::embed_tokens(batch.input, weight);
    return kernels::embed_tokens(batch.input, weight, at::cat(positions), at::cat(rows));
  }
};

class DecoderBlock : public ParameterLayer {
 public:
  DecoderBlock(const LlmConfig& config, AttentionRule rule, std::vector<Parameter> parameters)
      : ParameterLayer(std::move(parameters)), config_(config), rule_(rule) {}

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
    const std::int64_t dim = config_.head_width();
    const RotaryConfig rotary{dim, config_.rope_theta, rows.scalar_type(), rows.device()};
    const auto& table = text_rotary(batch, rotary);
    const auto project = [&](int weight) {
      return kernels::linear(rows, self[weight])
          .view({rows.size(0), self[weight].size(0) / dim, dim});
    };
    // In this order, which is that of their gradients' sum, and so of its bits.
    const auto value = project(kValue);
    const auto key = kernels::rotate(project(kKey), table);
    const auto query = kernels::rotate(project(kQuery), table);
    return kernels::linear(see(query, key, value, batch).flatten(1), self[kOut]);
  }

  at::Tensor see(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                 const PackedBatch& batch) const {
    // A batch of the other rule would train another model without a word.
    TORCH_CHECK_VALUE((batch.mask != nullptr) == (rule_ == AttentionRule::modality),
                      batch.mask ? "a mask for a causal llm" : "no mask for attention by modality");
    if (batch.mask) return kernels::bitfield_attention(query, key, value, batch.mask);
    return kernels::packed_attention(query, key, value, batch.segments, /*causal=*/true);
  }

  LlmConfig config_;
  AttentionRule rule_;
};

class OutputHead : public ParameterLayer {
 public:
  OutputHead(const LlmConfig& config, std::vector<Parameter> parameters)
      : ParameterLayer(std::move(parameters)), eps_(config.rms_norm_eps) {}

  // Norm and logits are computed for the rows that predict something, which saves most of the work
  // where prompts and media are long.
  at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) override {
    const auto next = kernels::next_token_targets(batch.labels, batch.segments);
    const auto chosen = kernels::select_rows(rows, kernels::to_device(next.rows, rows.device()));
    return kernels::projected_cross_entropy(
        normed(chosen), (*this)[1], kernels::to_device(next.targets, rows.device()), next.counts);
  }

  at::Tensor logits(const at::Tensor& rows) const {
    return kernels::linear(normed(rows), (*this)[1]);
  }

 private:
  at::Tensor normed(const at::Tensor& rows) const {
    return kernels::rms_norm(rows, (*this)[0], eps_);
  }

  double eps_;
};

}  // namespace

std::unique_ptr<Layer> make_llama(const ModuleConfig& module, int index,
                                  std::vector<Parameter> parameters) {
  const auto& config = module.config.as<LlmConfig>();
  if (index == 0) return std::make_unique<TokenEmbedding>(std::move(parameters));
  if (index > config.num_hidden_layers)
    return std::make_unique<OutputHead>(config, std::move(parameters));
  return std::make_unique<DecoderBlock>(config, module.attention, std::move(parameters));
}

at::Tensor head_logits(Layer& head, const at::Tensor& rows) {
  return dynamic_cast<OutputHead&>(head).logits(rows);
}

}  // namespace troupe::models
