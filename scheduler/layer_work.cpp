#include "scheduler/layer_work.hpp"

#include <algorithm>
#include <cassert>
#include <variant>

namespace troupe::scheduler {

namespace {

LayerWork dense(std::string kind, double weights, std::int64_t width, double kept) {
  LayerWork work;
  work.kind = std::move(kind);
  work.weights = work.used_weights = weights;
  work.width = width;
  work.activation_elements = kept;
  return work;
}

/// Sizes of a block: rows of `width` columns, queries of `queries` columns, keys and values of
/// `kv_share` as many.
struct BlockSizes {
  double width = 0;
  double queries = 0;
  double kv_share = 1;
  double feed_forward = 0;
  bool gated = false;
  bool causal = false;
};

// Attention and feed-forward. Scores and values take 2 flops each per pair of rows and column.
LayerWork block(std::string kind, const BlockSizes& sizes) {
  const auto& [width, queries, kv_share, feed_forward, gated, causal] = sizes;
  const double attention = width * queries * (2 + 2 * kv_share);
  LayerWork work = dense(std::move(kind), attention + width * feed_forward * (gated ? 3 : 2),
                         static_cast<std::int64_t>(width),
                         width * 4 + queries * (2 + 2 * kv_share) + feed_forward * (gated ? 3 : 2));
  work.attention_flops = 4 * queries;
  work.causal = causal;
  return work;
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
    LayerWork first = dense(name + ".embed", patch * c.embed_dim, c.embed_dim, c.embed_dim);
    first.entry_weights = first.used_weights;
    const double groups = double(c.spatial_merge_size) * c.spatial_merge_size;
    const double merged = c.embed_dim * groups;
    // The merger sees one row per group of patches: per patch a share of its weights.
    LayerWork last = dense(name + ".merger", merged * merged + merged * c.hidden_size, c.embed_dim,
                           3.0 * c.embed_dim);
    last.used_weights = last.weights / groups;
    const BlockSizes sizes{double(c.embed_dim), double(c.embed_dim), 1, c.embed_dim * c.mlp_ratio};
    return surrounded(std::move(first), block(name + ".block", sizes), c.depth, std::move(last));
  }
  std::vector<LayerWork> operator()(const AudioConfig& c) const {
    const double of_frames = 3.0 * c.num_mel_bins * c.d_model;
    const double of_rows = 3.0 * c.d_model * c.d_model;
    LayerWork first = dense(name + ".embed", of_frames + of_rows, c.d_model, 2.0 * c.d_model);
    // The first convolution runs over every frame, the second over every other one.
    first.entry_weights = 2 * of_frames;
    first.used_weights = first.entry_weights + of_rows;
    LayerWork last = dense(name + ".norm", c.d_model, c.d_model, c.d_model);
    last.used_weights = 0;  // A norm multiplies no matrix.
    const BlockSizes sizes{double(c.d_model), double(c.d_model), 1, double(c.encoder_ffn_dim)};
    return surrounded(std::move(first), block(name + ".block", sizes), c.encoder_layers,
                      std::move(last));
  }
  std::vector<LayerWork> operator()(const ProjectorConfig& c) const {
    const double in = static_cast<double>(c.input_size > 0 ? c.input_size : input_width);
    const double out = c.output_size;
    const double hidden = c.hidden_size > 0 ? c.hidden_size : out;
    LayerWork mlp =
        dense(name + ".mlp", in * hidden + hidden * out, c.output_size, in + 2 * hidden);
    mlp.entry_weights = in * hidden;
    return {std::move(mlp)};
  }
  std::vector<LayerWork> operator()(const LlmConfig& c) const {
    const double vocabulary = double(c.vocab_size) * c.hidden_size;
    LayerWork first = dense(name + ".embed", vocabulary, c.hidden_size, c.hidden_size);
    first.used_weights = 0;  // A look-up multiplies nothing.
    const double head_dim =
        c.head_dim > 0 ? c.head_dim : double(c.hidden_size) / c.num_attention_heads;
    const BlockSizes sizes{double(c.hidden_size),
                           head_dim * c.num_attention_heads,
                           double(c.num_key_value_heads) / c.num_attention_heads,
                           double(c.intermediate_size),
                           true,
                           true};
    return surrounded(
        std::move(first), block(name + ".block", sizes), c.num_hidden_layers,
        dense(name + ".head", vocabulary, c.hidden_size, double(c.vocab_size) + c.hidden_size));
  }
};

}  // namespace

std::vector<LayerWork> layer_works(const ModuleConfig& module, std::int64_t input_width) {
  return std::visit(Works{module.name, input_width}, module.config);
}

std::vector<std::vector<LayerWork>> model_works(const ModelGraph& graph,
                                                const std::vector<ModuleConfig>& modules) {
  std::vector<std::vector<LayerWork>> works;
  for (const ModuleSpec& spec : graph.modules) {
    std::int64_t input_width = 0;
    for (const ModuleSpec& before : graph.modules)
      for (const ModuleId next : before.next)
        if (graph.at(next).name == spec.name) input_width = before.output_width;
    const auto found = std::find_if(modules.begin(), modules.end(),
                                    [&](const auto& module) { return module.name == spec.name; });
    assert(found != modules.end());
    ModuleConfig module = *found;
    // The graph knows the width that a projector without one takes from the llm.
    if (auto* projector = std::get_if<ProjectorConfig>(&module.config);
        projector != nullptr && projector->output_size == 0)
      projector->output_size = static_cast<std::int32_t>(spec.output_width);
    works.push_back(layer_works(module, input_width));
  }
  return works;
}

}  // namespace troupe::scheduler
