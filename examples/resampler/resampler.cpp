// A vision encoder that hands each picture to the llm as a fixed number of rows: transformer blocks
// over its patches, then learned queries that attend to them.

#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <cmath>

#include "kernels/activations.hpp"
#include "kernels/packed_attention.hpp"
#include "models/encoder_block.hpp"
#include "models/plugin.hpp"

namespace {

using namespace troupe;
using namespace troupe::models;

struct Config {
  std::int32_t depth = 2, width = 64, heads = 4, queries = 8;
  std::int32_t hidden_size = 128;  // Columns of the rows that it hands on.
  friend bool operator==(const Config&, const Config&) = default;
};

// What the job file may say, and what planners and data know. First the keys of `config`.
void fields(ConfigFields& v, Config& x) {
  v.integer("depth", x.depth, 1, 1000);
  v.integer("width", x.width, 1, 1 << 16);
  v.integer("heads", x.heads, 1, 1 << 10);
  v.integer("queries", x.queries, 1, 4096);
  v.integer("hidden_size", x.hidden_size, 1, 1 << 16);
}
std::vector<ConfigProblem> problems(const Config& x) {
  const auto heads = not_divided("heads", x.heads, "width", x.width);
  return heads ? std::vector{*heads} : std::vector<ConfigProblem>{};
}
ModuleSizes sizes(const Config& x) { return {x.depth + 2, 0, x.hidden_size}; }
MediaInput media(const Config& x) { return {Medium::image, {14, 1, 1, x.queries}}; }

ModuleDescription describe(const std::string& module, const Config& c) {
  auto layers = surrounded_layers(module, "embed", "blocks", c.depth, "resampler");
  for (auto& layer : layers) {
    const bool first = &layer == &layers.front(), last = &layer == &layers.back();
    const auto& name = layer.name;
    if (first) add_linear(layer, name, c.width, media(c).vision.columns());
    if (first) continue;
    add_norm(layer, name + ".norm1", c.width);
    add_linear(layer, name + (last ? ".kv" : ".qkv"), (last ? 2 : 3) * c.width, c.width);
    add_linear(layer, name + ".proj", last ? c.hidden_size : c.width, c.width);
    if (last) layer.parameters.push_back({name + ".queries", {c.queries, c.width}});
    if (last) continue;
    add_norm(layer, name + ".norm2", c.width);
    add_linear(layer, name + ".fc1", 4 * c.width, c.width);
    add_linear(layer, name + ".fc2", c.width, 4 * c.width);
  }
  return {layers, c.width, c.hidden_size};
}

std::vector<LayerWork> works(const std::string& module, const Config& c) {
  const double width = c.width, columns = media(c).vision.columns();
  // A patch meets every query twice: for its score, and for its share of the answer.
  const double last = 2 * width * width + 2 * width * c.queries;
  return surrounded(
      dense_work(module + ".embed", columns * width, c.width, width),
      block_work(module + ".block", c.width, {c.heads, c.heads, c.width / c.heads, false},
                 4 * width, /*gated=*/false),
      c.depth, dense_work(module + ".resampler", last, c.width, 4 * width));
}

// What stages run: each layer reads its parameters in the order of `describe`.
struct Block : EncoderBlock {
  Block(std::int64_t heads, std::vector<Parameter> parameters)
      : EncoderBlock(std::move(parameters), {0, 6, 8, 10}, 1e-6), heads_(heads) {}
  at::Tensor activate(const at::Tensor& wide) const override { return kernels::gelu(wide); }
  at::Tensor attend(const at::Tensor& rows, const PackedBatch& batch) const override {
    const auto all = linear(rows, 2).view({rows.size(0), 3, heads_, rows.size(1) / heads_});
    return linear(kernels::packed_attention(all.select(1, 0), all.select(1, 1), all.select(1, 2),
                                            batch.segments, /*causal=*/false).flatten(1), 4);
  }
  const std::int64_t heads_;
};

struct Resampler : ParameterLayer {
  using ParameterLayer::ParameterLayer;
  at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) override {
    const auto& p = *this;  // norm, kv, proj, queries
    const auto both = kernels::linear(kernels::layer_norm(rows, p[0], p[1], 1e-6), p[2], p[3]);
    const auto keys = both.chunk(2, 1)[0], values = both.chunk(2, 1)[1];
    const auto answer = [&](std::int64_t begin, std::int64_t length) {  // Of one picture.
      const auto scores = at::matmul(p[6], keys.narrow(0, begin, length).t());
      const auto shares = at::softmax(scores.div(std::sqrt(double(rows.size(1)))), 1);
      return at::matmul(shares, values.narrow(0, begin, length));
    };
    return kernels::linear(by_segment(batch.segments, values.narrow(0, 0, 0), answer), p[4], p[5]);
  }
};

std::unique_ptr<Layer> make(const Config& c, int index, std::vector<Parameter> list) {
  if (index == 0) return std::make_unique<LinearLayer>(std::move(list));
  if (index > c.depth) return std::make_unique<Resampler>(std::move(list));
  return std::make_unique<Block>(c.heads, std::move(list));
}

Status register_all() {
  return register_family(encoder_family<Config>(
      "resampler", {fields, sizes, media, describe, works, make, problems}));
}

}  // namespace

TROUPE_PLUGIN(register_all)
