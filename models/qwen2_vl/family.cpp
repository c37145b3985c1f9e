#include "models/qwen2_vl/family.hpp"

#include "models/family/block_work.hpp"
#include "models/family/size_problems.hpp"

namespace troupe::models {

namespace {

using By = TensorSplit::By;

/// Columns inside the feed-forward of a block.
std::int64_t inner_width(const VisionConfig& x) {
  return static_cast<std::int64_t>(x.embed_dim * x.mlp_ratio);
}

void fields(ConfigFields& v, VisionConfig& x) {
  v.integer("depth", x.depth, 1, 10'000);
  v.integer("embed_dim", x.embed_dim, 1, 1 << 20);
  v.integer("num_heads", x.num_heads, 1, 1 << 20);
  v.number("mlp_ratio", x.mlp_ratio, 0.01, 1000);
  v.integer("hidden_size", x.hidden_size, 1, 1 << 20);
  v.integer("patch_size", x.patch_size, 1, 1024);
  v.integer("spatial_merge_size", x.spatial_merge_size, 1, 64);
  v.integer("temporal_patch_size", x.temporal_patch_size, 1, 64);
  v.integer("in_channels", x.in_channels, 1, 64);
}

std::vector<ConfigProblem> problems(const VisionConfig& x) {
  std::vector<ConfigProblem> found;
  if (auto problem = not_divided("num_heads", x.num_heads, "embed_dim", x.embed_dim))
    found.push_back(std::move(*problem));
  else if ((x.embed_dim / x.num_heads) % 4 != 0)
    found.push_back({"num_heads",
                     "embed_dim / num_heads = " + std::to_string(x.embed_dim / x.num_heads) +
                         " is no multiple of 4, as 2-D rotary positions need",
                     "choose num_heads so that each head has 4, 8, 16, 32 ... columns"});
  if (x.in_channels != 3)
    found.push_back({"in_channels", "images have 3 channels, not " + std::to_string(x.in_channels),
                     "write in_channels = 3 or leave it out", /*only_with_data=*/true});
  if (inner_width(x) < 1)
    found.push_back({"mlp_ratio", "embed_dim x mlp_ratio is below one column", "raise mlp_ratio"});
  return found;
}

ModuleSizes sizes(const VisionConfig& x) { return {x.depth + 2, 0, x.hidden_size}; }

MediaInput media(const VisionConfig& x) {
  return {Medium::image, {x.patch_size, x.spatial_merge_size, x.temporal_patch_size}};
}

LayerDescription describe_block(const std::string& name, const VisionConfig& config) {
  const std::int64_t width = config.embed_dim;
  const auto inner = inner_width(config);
  LayerDescription block{name, {}};
  add_norm(block, name + ".norm1", width);
  add_norm(block, name + ".norm2", width);
  add_linear(block, name + ".attn.qkv", 3 * width, width, {By::output});
  add_linear(block, name + ".attn.proj", width, width, {By::input});
  add_linear(block, name + ".mlp.fc1", inner, width, {By::output});
  add_linear(block, name + ".mlp.fc2", width, inner, {By::input});
  return block;
}

ModuleDescription describe(const ModuleConfig& module, const Widths&) {
  const auto& config = module.config.as<VisionConfig>();
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
  add_linear(merger, merger.name + ".mlp.0", joined, joined, {By::output});
  add_linear(merger, merger.name + ".mlp.2", config.hidden_size, joined, {By::input});
  result.layers.push_back(std::move(merger));
  return result;
}

std::vector<LayerWork> works(const ModuleConfig& module, const Widths&) {
  const auto& c = module.config.as<VisionConfig>();
  const double patch = double(c.in_channels) * c.temporal_patch_size * c.patch_size * c.patch_size;
  LayerWork first =
      dense_work(module.name + ".embed", patch * c.embed_dim, c.embed_dim, c.embed_dim);
  first.entry_weights = first.used_weights;
  const double groups = double(c.spatial_merge_size) * c.spatial_merge_size;
  const double merged = c.embed_dim * groups;
  // The merger sees one row per group of patches: per patch a share of its weights.
  LayerWork last = dense_work(module.name + ".merger", merged * merged + merged * c.hidden_size,
                              c.embed_dim, 3.0 * c.embed_dim);
  last.used_weights = last.weights / groups;
  last.joined_rows = std::int64_t{c.spatial_merge_size} * c.spatial_merge_size;
  const AttentionShape attention{c.num_heads, c.num_heads, c.embed_dim / c.num_heads, false};
  return surrounded(std::move(first),
                    block_work(module.name + ".block", c.embed_dim, attention,
                               c.embed_dim * c.mlp_ratio, /*gated=*/false),
                    c.depth, std::move(last));
}

}  // namespace

Family qwen2_vl() {
  Family family{"qwen2-vl", ModuleKind::encoder, VisionConfig{}};
  family.fields = fields_of(fields);
  family.sizes = asked(sizes);
  family.problems = asked(problems);
  family.media = asked(media);
  family.describe = describe;
  family.works = works;
  return family;
}

}  // namespace troupe::models
