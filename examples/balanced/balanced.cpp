// A vision encoder of experts that are kept busy alike without a loss: a bias decides with the
// scores which expert a patch goes to, and after each step a rule moves it by their loads.
// After Wang et al., "Auxiliary-loss-free load balancing strategy for mixture-of-experts" (2024).

#include <ATen/ops/argsort.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/softmax.h>

#include "kernels/norms.hpp"
#include "models/plugin.hpp"

namespace {

using namespace troupe;
using namespace troupe::models;

struct Config {
  std::int32_t depth = 2, width = 64, experts = 4, expert_width = 64;
  std::int32_t hidden_size = 128;  // Columns of the rows that it hands on.
  double rate = 0.01;              // What a bias moves in a step.
  friend bool operator==(const Config&, const Config&) = default;
};

void fields(ConfigFields& v, Config& x) {
  v.integer("depth", x.depth, 1, 1000);
  v.integer("width", x.width, 1, 1 << 16);
  v.integer("experts", x.experts, 1, 1 << 10);
  v.integer("expert_width", x.expert_width, 1, 1 << 16);
  v.integer("hidden_size", x.hidden_size, 1, 1 << 16);
  v.number("rate", x.rate, 0, 1);
}
ModuleSizes sizes(const Config& x) { return {x.depth + 2, 0, x.hidden_size}; }
MediaInput media(const Config&) { return {Medium::image, {14, 1, 1}}; }  // A patch becomes a row.

ModuleDescription describe(const std::string& module, const Config& c) {
  auto layers = surrounded_layers(module, "embed", "mixtures", c.depth, "head");
  add_linear(layers.front(), layers.front().name, c.width, media(c).vision.columns());
  add_linear(layers.back(), layers.back().name, c.hidden_size, c.width);
  for (std::size_t i = 1; i + 1 < layers.size(); ++i) {
    const auto name = layers[i].name;
    add_norm(layers[i], name + ".norm", c.width);
    ParameterSpec bias{name + ".bias", {c.experts}, Initial::zeros};
    bias.own_update = true;  // By `update` below; all others by AdamW.
    layers[i].parameters.push_back({name + ".router", {c.experts, c.width}});
    layers[i].parameters.push_back(bias);
    layers[i].parameters.push_back({name + ".up", {c.experts, c.expert_width, c.width}});
    layers[i].parameters.push_back({name + ".down", {c.experts, c.width, c.expert_width}});
  }
  return {layers, c.width, c.hidden_size};
}

std::vector<LayerWork> works(const std::string& module, const Config& c) {
  const double width = c.width, columns = media(c).vision.columns();
  const double mixture = width * (c.experts + 2 * c.expert_width);  // Of what one patch passes.
  return surrounded(dense_work(module + ".embed", columns * width, c.width, width),
                    dense_work(module + ".mixture", mixture, c.width, 3 * width), c.depth,
                    dense_work(module + ".head", width * c.hidden_size, c.width, width));
}

struct Mixture : ParameterLayer {
  using ParameterLayer::ParameterLayer;

  at::Tensor forward(const at::Tensor& rows, const PackedBatch&) override {
    const auto& p = *this;  // norm, router, bias, up, down
    const auto normed = kernels::layer_norm(rows, p[0], p[1], 1e-6);
    const auto shares = at::softmax(at::linear(normed, p[2]), 1);
    const auto chosen = shares.detach().add(p[3].detach()).argmax(1);
    // Rows by expert, each expert's through it, and back to their places.
    const auto order = at::argsort(chosen, /*stable=*/true, 0, false);
    const auto loads = at::bincount(chosen, {}, p[3].size(0));
    const auto counts = loads.cpu();
    const at::IntArrayRef sizes(counts.data_ptr<std::int64_t>(), std::size_t(counts.numel()));
    auto own = normed.index_select(0, order).split_with_sizes(sizes);
    const auto ups = p[4].unbind(), downs = p[5].unbind();
    for (std::size_t e = 0; e < own.size(); ++e)
      own[e] = at::linear(at::linear(own[e], ups[e]).relu(), downs[e]);
    const auto share = shares.gather(1, chosen.unsqueeze(1));
    const auto out = share.mul(at::cat(own).index_select(0, order.argsort()));
    // Summed over all parts and replicas of the batch before `update` sees them.
    return contribute(rows.add(out), p[3], loads);
  }
};

// Experts with less than their share of the batch's patches become likelier, others less so.
void update(const Config& c, const ParameterUpdate& bias) {
  bias.value.add_(bias.sum.mean().sub(bias.sum).sign(), c.rate);
}

std::unique_ptr<Layer> make(const Config& c, int index, std::vector<Parameter> list) {
  if (index == 0 || index > c.depth) return std::make_unique<LinearLayer>(std::move(list));
  return std::make_unique<Mixture>(std::move(list));
}

Status register_all() {
  return register_family(encoder_family<Config>(
      "balanced", {fields, sizes, media, describe, works, make, nullptr, update}));
}

}  // namespace

TROUPE_PLUGIN(register_all)
