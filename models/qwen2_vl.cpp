// The vision transformer of Qwen2-VL: patches in 2x2-block order, 2-D rotary positions, full
// attention within each image, and a merger that joins four patches to one row.
//
// Shapes: P patches, E embed_dim, H heads, D = E / H, M = spatial_merge_size.

#include "kernels/activations.hpp"
#include "kernels/linear.hpp"
#include "kernels/norms.hpp"
#include "kernels/packed_attention.hpp"
#include "models/batch_cache.hpp"
#include "models/encoder_block.hpp"

namespace troupe::models {

namespace {

constexpr double kEps = 1e-6;

class PatchEmbed : public ParameterLayer {
 public:
  using ParameterLayer::ParameterLayer;

  at::Tensor forward(const at::Tensor&, const PackedBatch& batch) override {
    const auto& weight = (*this)[0];
    return kernels::linear(batch.input.to(weight.options()), weight);
  }
};

class VisionBlock : public EncoderBlock {
 public:
  VisionBlock(const VisionConfig& config, std::vector<Parameter> parameters)
      : EncoderBlock(std::move(parameters), {kNorm1, kNorm2, kFc1, kFc2}, kEps), config_(config) {}

 private:
  // Each is followed by its bias.
  enum : int { kNorm1 = 0, kNorm2 = 2, kQkv = 4, kProj = 6, kFc1 = 8, kFc2 = 10 };

  at::Tensor activate(const at::Tensor& wide) const override { return kernels::quick_gelu(wide); }

  at::Tensor attend(const at::Tensor& rows, const PackedBatch& batch) const override {
    const std::int64_t heads = config_.num_heads, width = config_.embed_dim, dim = width / heads;
    const RotaryConfig rotary{dim, 10000, rows.scalar_type(), rows.device()};
    const auto& table = grid_rotary(batch, rotary, config_.spatial_merge_size);
    const auto qkv = linear(rows, kQkv).view({rows.size(0), 3, heads, dim}).unbind(1);
    const auto out =
        kernels::packed_attention(kernels::rotate(qkv[0], table), kernels::rotate(qkv[1], table),
                                  qkv[2], batch.segments, /*causal=*/false);
    return linear(out.view({rows.size(0), width}), kProj);
  }

  VisionConfig config_;
};

class Merger : public ParameterLayer {
 public:
  using ParameterLayer::ParameterLayer;

  at::Tensor forward(const at::Tensor& rows, const PackedBatch&) override {
    const auto& self = *this;
    const auto normed = kernels::layer_norm(rows, self[0], self[1], kEps);
    const auto joined = normed.view({-1, self[2].size(1)});  // [P / M^2, M^2 * E]
    const auto wide = kernels::gelu(kernels::linear(joined, self[2], self[3]));
    return kernels::linear(wide, self[4], self[5]);
  }
};

LayerDescription describe_block(const std::string& name, const VisionConfig& config) {
  const std::int64_t width = config.embed_dim;
  const auto inner = static_cast<std::int64_t>(config.embed_dim * config.mlp_ratio);
  LayerDescription block{name, {}};
  add_norm(block, name + ".norm1", width);
  add_norm(block, name + ".norm2", width);
  add_linear(block, name + ".attn.qkv", 3 * width, width);
  add_linear(block, name + ".attn.proj", width, width);
  add_linear(block, name + ".mlp.fc1", inner, width);
  add_linear(block, name + ".mlp.fc2", width, inner);
  return block;
}

Result<ModuleDescription> describe(const ModuleConfig& module, const std::vector<ModuleConfig>&) {
  const auto& config = std::get<VisionConfig>(module.config);
  if (config.depth < 1 || config.embed_dim < 1 || config.num_heads < 1 || config.hidden_size < 1 ||
      config.patch_size < 1 || config.spatial_merge_size < 1 || config.temporal_patch_size < 1 ||
      config.in_channels < 1 || !(config.embed_dim * config.mlp_ratio >= 1))
    return config_error(module, "config", "every size of a vision encoder must be at least 1",
                        "correct the sizes in this table");
  if (config.embed_dim % (4 * config.num_heads) != 0)
    return config_error(module, "config.embed_dim",
                        "embed_dim " + std::to_string(config.embed_dim) + " over num_heads " +
                            std::to_string(config.num_heads) +
                            " must be a multiple of 4, because positions are 2-D",
                        "choose embed_dim as a multiple of 4 * num_heads");
  ModuleDescription result{{}, config.embed_dim, config.hidden_size};
  const auto& name = module.name;
  result.layers.push_back({name + ".patch_embed",
                           {{name + ".patch_embed.proj.weight",
                             {config.embed_dim, config.in_channels, config.temporal_patch_size,
                              config.patch_size, config.patch_size},
                             Initial::normal}}});
  for (int i = 0; i < config.depth; ++i)
    result.layers.push_back(describe_block(name + ".blocks." + std::to_string(i), config));
  LayerDescription merger{name + ".merger", {}};
  const std::int64_t joined =
      std::int64_t{config.embed_dim} * config.spatial_merge_size * config.spatial_merge_size;
  add_norm(merger, merger.name + ".ln_q", config.embed_dim);
  add_linear(merger, merger.name + ".mlp.0", joined, joined);
  add_linear(merger, merger.name + ".mlp.2", config.hidden_size, joined);
  result.layers.push_back(std::move(merger));
  return result;
}

std::unique_ptr<Layer> make(const ModuleConfig& module, int index,
                            std::vector<Parameter> parameters) {
  const auto& config = std::get<VisionConfig>(module.config);
  if (index == 0) return std::make_unique<PatchEmbed>(std::move(parameters));
  if (index > config.depth) return std::make_unique<Merger>(std::move(parameters));
  return std::make_unique<VisionBlock>(config, std::move(parameters));
}

}  // namespace

const Family kQwen2Vl{"qwen2-vl", ModuleKind::encoder, 0, describe, make};

}  // namespace troupe::models
