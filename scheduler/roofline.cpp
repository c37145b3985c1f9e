#include "scheduler/roofline.hpp"

#include <algorithm>
#include <variant>

namespace troupe::scheduler {

namespace {

double bytes_per_element(Dtype dtype) {
  return dtype == Dtype::bf16 ? 2 : dtype == Dtype::fp32 ? 4 : 8;
}

LayerWork dense(std::string kind, double weights, std::int64_t width, double kept) {
  return {std::move(kind), weights, weights, 0, width, kept};
}

// Attention and feed-forward of a block. Scores and values take 2 flops each per pair of tokens and
// column; a causal block needs half of the pairs.
LayerWork block(std::string kind, double width, double kv_share, double feed_forward, bool gated,
                bool causal) {
  const double attention = width * width * (2 + 2 * kv_share);
  const double dense_weights = attention + width * feed_forward * (gated ? 3 : 2);
  const double kept = width * (6 + 2 * kv_share) + feed_forward * (gated ? 3 : 2);
  return {std::move(kind),
          dense_weights,
          dense_weights,
          4 * width * (causal ? 0.5 : 1),
          static_cast<std::int64_t>(width),
          kept};
}

std::vector<LayerWork> surrounded(LayerWork first, const LayerWork& inner, std::int32_t count,
                                  LayerWork last) {
  std::vector<LayerWork> works{std::move(first)};
  works.insert(works.end(), static_cast<std::size_t>(std::max(count, 0)), inner);
  works.push_back(std::move(last));
  return works;
}

struct Works {
  const std::string& name;
  std::int64_t input_width;

  std::vector<LayerWork> operator()(const VisionConfig& c) const {
    const double patch =
        double(c.in_channels) * c.temporal_patch_size * c.patch_size * c.patch_size;
    const double merged = double(c.embed_dim) * c.spatial_merge_size * c.spatial_merge_size;
    // The merger sees one row per group of patches: per patch a share of its weights.
    const double merger = merged * merged + merged * c.hidden_size;
    const double groups = double(c.spatial_merge_size) * c.spatial_merge_size;
    LayerWork last = dense(name + ".merger", merger, c.embed_dim, 3.0 * c.embed_dim);
    last.used_weights = merger / groups;
    return surrounded(
        dense(name + ".embed", patch * c.embed_dim, c.embed_dim, c.embed_dim),
        block(name + ".block", c.embed_dim, 1, c.embed_dim * c.mlp_ratio, false, false), c.depth,
        std::move(last));
  }
  std::vector<LayerWork> operator()(const AudioConfig& c) const {
    const double convolutions = 3.0 * c.num_mel_bins * c.d_model + 3.0 * c.d_model * c.d_model;
    return surrounded(dense(name + ".embed", convolutions, c.d_model, 2.0 * c.d_model),
                      block(name + ".block", c.d_model, 1, c.encoder_ffn_dim, false, false),
                      c.encoder_layers, dense(name + ".norm", c.d_model, c.d_model, c.d_model));
  }
  std::vector<LayerWork> operator()(const ProjectorConfig& c) const {
    const double in = static_cast<double>(c.input_size > 0 ? c.input_size : input_width);
    const double out = c.output_size;
    const double hidden = c.hidden_size > 0 ? c.hidden_size : out;
    return {dense(name + ".mlp", in * hidden + hidden * out, c.output_size, in + 2 * hidden)};
  }
  std::vector<LayerWork> operator()(const LlmConfig& c) const {
    const double kv = double(c.num_key_value_heads) / c.num_attention_heads;
    LayerWork first =
        dense(name + ".embed", double(c.vocab_size) * c.hidden_size, c.hidden_size, c.hidden_size);
    first.used_weights = 0;  // A look-up multiplies nothing.
    return surrounded(std::move(first),
                      block(name + ".block", c.hidden_size, kv, c.intermediate_size, true, true),
                      c.num_hidden_layers,
                      dense(name + ".head", double(c.vocab_size) * c.hidden_size, c.hidden_size,
                            double(c.vocab_size) + c.hidden_size));
  }
};

class Roofline {
 public:
  Roofline(const DeviceSpec& device, const RooflineOptions& options)
      : flops_per_ms_(device.teraflops(options.dtype) * options.compute_share * 1e9),
        bytes_per_ms_(device.memory_gigabytes_per_s * options.bandwidth_share * 1e6),
        link_bytes_per_ms_(device.link_gigabytes_per_s * options.link_share * 1e6),
        launch_ms_(options.launch_ms),
        element_(bytes_per_element(options.dtype)) {}

  ProfilePoint point(const LayerWork& work, TokenCount tokens, Parallelism parallelism) const {
    const double rows = static_cast<double>(tokens) / parallelism.cp;
    const double matrix_flops = 2 * work.used_weights / parallelism.tp * rows;
    // Every pass reads the weights it uses and reads and writes its rows.
    const double traffic =
        element_ * (work.used_weights / parallelism.tp + rows * work.activation_elements);
    const double pass = std::max(matrix_flops / flops_per_ms_, traffic / bytes_per_ms_);
    const double collective = collective_ms(work, rows, parallelism);
    const double attention = work.attention_flops * static_cast<double>(tokens) *
                             static_cast<double>(tokens) / parallelism.cp / parallelism.tp /
                             flops_per_ms_;
    ProfilePoint made;
    made.tokens = tokens;
    made.linear = {pass + collective + launch_ms_, pass + collective + launch_ms_,
                   pass + launch_ms_, rows * work.activation_elements * element_ / parallelism.tp};
    // Backward of attention: gradients of both products, twice the forward; no weights.
    made.attention = {attention, 2 * attention, 0, 0};
    return made;
  }

  Bytes parameters(const LayerWork& work, Parallelism parallelism) const {
    return Bytes{static_cast<std::int64_t>(work.weights * element_ / parallelism.tp)};
  }

 private:
  double collective_ms(const LayerWork& work, double rows, Parallelism parallelism) const {
    const double row_bytes = rows * static_cast<double>(work.width) * element_;
    double bytes = 0;
    if (parallelism.tp > 1) bytes += 2 * 2 * row_bytes * (1 - 1.0 / parallelism.tp);
    if (parallelism.cp > 1 && work.attention_flops > 0)
      bytes += 2 * row_bytes * (parallelism.cp - 1);
    return bytes / link_bytes_per_ms_;
  }

  double flops_per_ms_, bytes_per_ms_, link_bytes_per_ms_, launch_ms_, element_;
};

}  // namespace

std::vector<LayerWork> layer_works(const ModuleConfig& module, std::int64_t input_width) {
  return std::visit(Works{module.name, input_width}, module.config);
}

std::vector<LayerProfile> computed_profiles(const std::vector<LayerWork>& works,
                                            const DeviceSpec& device,
                                            const std::vector<Parallelism>& parallelisms,
                                            const RooflineOptions& options) {
  const Roofline roofline(device, options);
  std::vector<LayerProfile> profiles;
  for (const auto& work : works) {
    // Layers of a kind share one profile.
    if (std::any_of(profiles.begin(), profiles.end(),
                    [&](const auto& made) { return made.kind == work.kind; }))
      continue;
    for (const auto parallelism : parallelisms) {
      LayerProfile made{
          work.kind, parallelism, CostOrigin::computed, roofline.parameters(work, parallelism), {}};
      for (TokenCount tokens = 64; tokens <= 16384; tokens *= 2)
        made.points.push_back(roofline.point(work, tokens, parallelism));
      profiles.push_back(std::move(made));
    }
  }
  return profiles;
}

}  // namespace troupe::scheduler
