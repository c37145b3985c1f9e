// The audio encoder of Whisper: two convolutions over mel frames (the second halves their number),
// sinusoid positions, and transformer blocks with attention within each window of up to 30 s.
// Windows keep their true length: nothing is padded to 30 s unless the data already is.
//
// Shapes: F frames, R = rows after the convolutions, E d_model, H heads, D = E / H.

#include <ATen/ops/cat.h>

#include "kernels/activations.hpp"
#include "kernels/device_copies.hpp"
#include "kernels/linear.hpp"
#include "kernels/norms.hpp"
#include "kernels/packed_attention.hpp"
#include "kernels/window_convolution.hpp"
#include "models/built_in_layers.hpp"
#include "models/encoder_block.hpp"
#include "models/whisper/family.hpp"

namespace troupe::models {

namespace {

constexpr double kEps = 1e-5;

class Convolutions : public ParameterLayer {
 public:
  using ParameterLayer::ParameterLayer;

  at::Tensor forward(const at::Tensor&, const PackedBatch& batch) override {
    const auto& self = *this;
    check_windows(batch);
    const auto frames =
        kernels::to_device(batch.input, self[kConv1].device()).to(self[kConv1].options());
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

}  // namespace

std::unique_ptr<Layer> make_whisper(const ModuleConfig& module, int index,
                                    std::vector<Parameter> parameters) {
  const auto& config = module.config.as<AudioConfig>();
  if (index == 0) return std::make_unique<Convolutions>(std::move(parameters));
  if (index > config.encoder_layers) return std::make_unique<FinalNorm>(std::move(parameters));
  return std::make_unique<AudioBlock>(config, std::move(parameters));
}

}  // namespace troupe::models
