// The vision transformer of Qwen2-VL: patches in 2x2-block order, 2-D rotary positions, full
// attention within each image, and a merger that joins four patches to one row.
//
// Shapes: P patches, E embed_dim, H heads, D = E / H, M = spatial_merge_size.

#include "kernels/activations.hpp"
#include "kernels/device_copies.hpp"
#include "kernels/linear.hpp"
#include "kernels/norms.hpp"
#include "kernels/packed_attention.hpp"
#include "models/batch_cache.hpp"
#include "models/built_in_layers.hpp"
#include "models/encoder_block.hpp"
#include "models/qwen2_vl/family.hpp"

namespace troupe::models {

namespace {

constexpr double kEps = 1e-6;

class PatchEmbed : public ParameterLayer {
 public:
  using ParameterLayer::ParameterLayer;

  at::Tensor forward(const at::Tensor&, const PackedBatch& batch) override {
    const auto& weight = (*this)[0];
    return kernels::linear(kernels::to_device(batch.input, weight.device()).to(weight.options()),
                           weight);
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

}  // namespace

std::unique_ptr<Layer> make_qwen2_vl(const ModuleConfig& module, int index,
                                     std::vector<Parameter> parameters) {
  const auto& config = module.config.as<VisionConfig>();
  if (index == 0) return std::make_unique<PatchEmbed>(std::move(parameters));
  if (index > config.depth) return std::make_unique<Merger>(std::move(parameters));
  return std::make_unique<VisionBlock>(config, std::move(parameters));
}

}  // namespace troupe::models
