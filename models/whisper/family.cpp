#include "models/whisper/family.hpp"

#include "models/family/block_work.hpp"
#include "models/family/size_problems.hpp"

namespace troupe::models {

namespace {

using By = TensorSplit::By;

void fields(ConfigFields& v, AudioConfig& x) {
  v.integer("encoder_layers", x.encoder_layers, 1, 10'000);
  v.integer("d_model", x.d_model, 1, 1 << 20);
  v.integer("encoder_attention_heads", x.encoder_attention_heads, 1, 1 << 20);
  v.integer("encoder_ffn_dim", x.encoder_ffn_dim, 1, 1 << 20);
  v.integer("num_mel_bins", x.num_mel_bins, 1, 201);
  v.integer("max_source_positions", x.max_source_positions, 1, 1 << 20);
}

std::vector<ConfigProblem> problems(const AudioConfig& x) {
  std::vector<ConfigProblem> found;
  if (auto problem =
          not_divided("encoder_attention_heads", x.encoder_attention_heads, "d_model", x.d_model))
    found.push_back(std::move(*problem));
  if (x.d_model % 2 != 0 || x.d_model < 4)
    found.push_back({"d_model",
                     std::to_string(x.d_model) + " cannot hold sine and cosine positions",
                     "give an even number of at least 4"});
  if (x.max_source_positions < 1500)
    found.push_back({"max_source_positions",
                     std::to_string(x.max_source_positions) + " is less than a window of 30 s",
                     "write max_source_positions = 1500 or leave it out", /*only_with_data=*/true});
  return found;
}

ModuleSizes sizes(const AudioConfig& x) { return {x.encoder_layers + 2, 0, x.d_model}; }

MediaInput media(const AudioConfig& x) { return {Medium::audio, {}, {.mel_bins = x.num_mel_bins}}; }

LayerDescription describe_block(const std::string& name, const AudioConfig& config) {
  const std::int64_t width = config.d_model, inner = config.encoder_ffn_dim;
  LayerDescription block{name, {}};
  block.parameters.push_back(
      {name + ".self_attn.k_proj.weight", {width, width}, Initial::normal, false, {By::output}});
  add_linear(block, name + ".self_attn.v_proj", width, width, {By::output});
  add_linear(block, name + ".self_attn.q_proj", width, width, {By::output});
  add_linear(block, name + ".self_attn.out_proj", width, width, {By::input});
  add_norm(block, name + ".self_attn_layer_norm", width);
  add_linear(block, name + ".fc1", inner, width, {By::output});
  add_linear(block, name + ".fc2", width, inner, {By::input});
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

ModuleDescription describe(const ModuleConfig& module, const Widths&) {
  const auto& config = module.config.as<AudioConfig>();
  ModuleDescription result{{}, config.d_model, config.d_model};
  result.layers.push_back(describe_convolutions(module.name, config));
  for (int i = 0; i < config.encoder_layers; ++i)
    result.layers.push_back(describe_block(module.name + ".layers." + std::to_string(i), config));
  LayerDescription norm{module.name + ".layer_norm", {}};
  add_norm(norm, norm.name, config.d_model);
  result.layers.push_back(std::move(norm));
  return result;
}

std::vector<LayerWork> works(const ModuleConfig& module, const Widths&) {
  const auto& c = module.config.as<AudioConfig>();
  const double of_frames = 3.0 * c.num_mel_bins * c.d_model;
  const double of_rows = 3.0 * c.d_model * c.d_model;
  LayerWork first =
      dense_work(module.name + ".embed", of_frames + of_rows, c.d_model, 2.0 * c.d_model);
  // The first convolution runs over every frame, the second over every other one.
  first.entry_weights = 2 * of_frames;
  first.used_weights = first.entry_weights + of_rows;
  LayerWork last = dense_work(module.name + ".norm", c.d_model, c.d_model, c.d_model);
  last.used_weights = 0;  // A norm multiplies no matrix.
  const AttentionShape attention{c.encoder_attention_heads, c.encoder_attention_heads,
                                 c.d_model / c.encoder_attention_heads, false};
  return surrounded(std::move(first),
                    block_work(module.name + ".block", c.d_model, attention, c.encoder_ffn_dim,
                               /*gated=*/false),
                    c.encoder_layers, std::move(last));
}

}  // namespace

Family whisper() {
  Family family{"whisper", ModuleKind::encoder, AudioConfig{}};
  family.fields = fields_of(fields);
  family.sizes = asked(sizes);
  family.problems = asked(problems);
  family.media = asked(media);
  family.describe = describe;
  family.works = works;
  return family;
}

}  // namespace troupe::models
