// The audio encoder of Whisper: two convolutions over mel frames (the second halves their number),
// sinusoid positions, and transformer blocks with attention within each window of up to 30 s.
// Windows keep their true length: nothing is padded to 30 s unless the data already is.
//
// Shapes: F frames, R = rows after the convolutions, E d_model, H heads, D = E / H.

#include <ATen/ops/cat.h>

#include "kernels/activations.hpp"
#include "kernels/linear.hpp"
#include "kernels/norms.hpp"
#include "kernels/packed_attention.hpp"
#include "kernels/window_convolution.hpp"
#include "models/encoder_block.hpp"

namespace troupe::models {

namespace {

constexpr double kEps = 1e-5;

class Convolutions : public ParameterLayer {
 public:
  using ParameterLayer::ParameterLayer;

  at::Tensor forward(const at::Tensor&, const PackedBatch& batch) override {
    const auto& self = *this;
    check_windows(batch);
    const auto frames = batch.input.to(self[kConv1].options());
    const auto fine = kernels::gelu(kernels::window_convolution(
        frames, self[kConv1], self[kConv1 + 1], batch.input_segments, /*stride=*/1));
    const auto coarse = kernels::gelu(kernels::window_convolution(
        fine, self[kConv2], self[kConv2 + 1], batch.input_segments, /*stride=*/2));
    if (batch.segments.empty()) return coarse;
    std::vector<at::Tensor> positions;  // [R, E]: the first rows of the table for each window.
    for (const auto rows : batch.segments) positions.push_back(self[kPositions].narrow(0, 0, rows));
    return coarse.add(at::cat(positions));
  }

 private:
  enum : int { kConv1 = 0, kConv2 = 2, kPositions = 4 };

  void check_windows(const PackedBatch& batch) const {
    TORCH_CHECK_VALUE(batch.input_segments.size() == batch.segments.size(), "there are ",
                      batch.input_segments.size(), " windows of frames for ", batch.segments.size(),
                      " segments");
    const auto longest = (*this)[kPositions].size(0);
    for (std::size_t i = 0; i < batch.segments.size(); ++i)
      TORCH_CHECK_VALUE(
          batch.segments[i] == (batch.input_segments[i] + 1) / 2 && batch.segments[i] <= longest,
          "audio window ", i, " has ", batch.input_segments[i], " frames and ", batch.segments[i],
          " rows; rows must be half the frames, rounded up, and ", "at most ", longest);
  }
};

class AudioBlock : public EncoderBlock {
 public:
  AudioBlock(const AudioConfig& config, std::vector<Parameter> parameters)
      : EncoderBlock(std::move(parameters), {kNorm1, kNorm2, kFc1, kFc2}, kEps), config_(config) {}

 private:
  // Each but the key's is followed by its bias.
  enum : int {
    kKey = 0,
    kValue = 1,
    kQuery = 3,
    kOut = 5,
    kNorm1 = 7,
    kFc1 = 9,
    kFc2 = 11,
    kNorm2 = 13
  };

  at::Tensor activate(const at::Tensor& wide) const override { return kernels::gelu(wide); }

  at::Tensor attend(const at::Tensor& rows, const PackedBatch& batch) const override {
    const std::int64_t heads = config_.encoder_attention_heads, dim = config_.d_model / heads;
    const auto split = [&](const at::Tensor& x) { return x.view({rows.size(0), heads, dim}); };
    const auto query = linear(rows, kQuery);
    const auto key = kernels::linear(rows, (*this)[kKey]);
    const auto value = linear(rows, kValue);
    const auto out = kernels::packed_attention(split(query), split(key), split(value),
                                               batch.segments, /*causal=*/false);
    return linear(out.view({rows.size(0), config_.d_model}), kOut);
  }

  AudioConfig config_;
};

class FinalNorm : public ParameterLayer {
 public:
  using ParameterLayer::ParameterLayer;

  at::Tensor forward(const at::Tensor& rows, const PackedBatch&) override {
    return kernels::layer_norm(rows, (*this)[0], (*this)[1], kEps);
  }
};

LayerDescription describe_block(const std::string& name, const AudioConfig& config) {
  const std::int64_t width = config.d_model, inner = config.encoder_ffn_dim;
  LayerDescription block{name, {}};
  block.parameters.push_back({name + ".self_attn.k_proj.weight", {width, width}, Initial::normal});
  add_linear(block, name + ".self_attn.v_proj", width, width);
  add_linear(block, name + ".self_attn.q_proj", width, width);
  add_linear(block, name + ".self_attn.out_proj", width, width);
  add_norm(block, name + ".self_attn_layer_norm", width);
  add_linear(block, name + ".fc1", inner, width);
  add_linear(block, name + ".fc2", width, inner);
  add_norm(block, name + ".final_layer_norm", width);
  return block;
}

LayerDescription describe_convolutions(const std::string& module, const AudioConfig& config) {
  const std::int64_t width = config.d_model;
  const auto convolution = [&](LayerDescription& layer, const std::string& name, std::int64_t in) {
    layer.parameters.push_back({name + ".weight", {width, in, 3}, Initial::normal});
    layer.parameters.push_back({name + ".bias", {width}, Initial::zeros});
  };
  LayerDescription layer{module + ".conv", {}};
  convolution(layer, module + ".conv1", config.num_mel_bins);
  convolution(layer, module + ".conv2", width);
  layer.parameters.push_back({module + ".embed_positions.weight",
                              {config.max_source_positions, width},
                              Initial::sinusoid});
  return layer;
}

Result<ModuleDescription> describe(const ModuleConfig& module, const std::vector<ModuleConfig>&) {
  const auto& config = std::get<AudioConfig>(module.config);
  if (config.encoder_layers < 1 || config.encoder_attention_heads < 1 ||
      config.encoder_ffn_dim < 1 || config.num_mel_bins < 1 || config.max_source_positions < 1)
    return config_error(module, "config", "every size of an audio encoder must be at least 1",
                        "correct the sizes in this table");
  if (config.d_model < 4 || config.d_model % 2 != 0 ||
      config.d_model % config.encoder_attention_heads != 0)
    return config_error(module, "config.d_model",
                        "d_model " + std::to_string(config.d_model) +
                            " must be even, at least 4 and a multiple of encoder_attention_heads " +
                            std::to_string(config.encoder_attention_heads),
                        "choose d_model as a multiple of encoder_attention_heads");
  ModuleDescription result{{}, config.d_model, config.d_model};
  result.layers.push_back(describe_convolutions(module.name, config));
  for (int i = 0; i < config.encoder_layers; ++i)
    result.layers.push_back(describe_block(module.name + ".layers." + std::to_string(i), config));
  LayerDescription norm{module.name + ".layer_norm", {}};
  add_norm(norm, norm.name, config.d_model);
  result.layers.push_back(std::move(norm));
  return result;
}

std::unique_ptr<Layer> make(const ModuleConfig& module, int index,
                            std::vector<Parameter> parameters) {
  const auto& config = std::get<AudioConfig>(module.config);
  if (index == 0) return std::make_unique<Convolutions>(std::move(parameters));
  if (index > config.encoder_layers) return std::make_unique<FinalNorm>(std::move(parameters));
  return std::make_unique<AudioBlock>(config, std::move(parameters));
}

}  // namespace

const Family kWhisper{"whisper", ModuleKind::encoder, 1, describe, make};

}  // namespace troupe::models
