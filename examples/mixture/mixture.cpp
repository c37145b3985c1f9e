// A vision encoder of mixtures: each patch goes through one of several experts, whose backward is
// written by hand, and a loss of the layer's own keeps the experts busy alike.

#include <ATen/ops/argsort.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/softmax.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/norms.hpp"
#include "models/plugin.hpp"

namespace {

using namespace troupe;
using namespace troupe::models;
using torch::autograd::AutogradContext, torch::autograd::variable_list;

struct Config {
  std::int32_t depth = 2, width = 64, experts = 4, expert_width = 64;
  std::int32_t hidden_size = 128;  // Columns of the rows that it hands on.
  double balance = 0.01;           // Weight of the loss that keeps experts busy alike.
  friend bool operator==(const Config&, const Config&) = default;
};

void fields(ConfigFields& v, Config& x) {
  v.integer("depth", x.depth, 1, 1000);
  v.integer("width", x.width, 1, 1 << 16);
  v.integer("experts", x.experts, 1, 1 << 10);
  v.integer("expert_width", x.expert_width, 1, 1 << 16);
  v.integer("hidden_size", x.hidden_size, 1, 1 << 16);
  v.number("balance", x.balance, 0, 1e6);
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
    add_linear(layers[i], name + ".router", c.experts, c.width);
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

// What one expert makes of its rows: [n, width]; up: [wide, width]; down: [width, wide]. Keeps its
// arguments and what is between them.
struct Expert : torch::autograd::Function<Expert> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows, const at::Tensor& up,
                            const at::Tensor& down) {
    const auto middle = at::linear(rows, up).relu();
    context->save_for_backward({rows, up, down, middle});
    return at::linear(middle, down);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &rows = saved[0], &up = saved[1], &down = saved[2], &middle = saved[3];
    const auto d_middle = gradients[0].matmul(down).mul(middle.gt(0));
    return {d_middle.matmul(up), d_middle.t().matmul(rows), gradients[0].t().matmul(middle)};
  }
};

struct Mixture : ParameterLayer {
  Mixture(double balance, std::vector<Parameter> list)
      : ParameterLayer(std::move(list)), balance_(balance) {}

  at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) override {
    const auto& p = *this;  // norm, router, up, down
    const auto normed = kernels::layer_norm(rows, p[0], p[1], 1e-6);
    const auto shares = at::softmax(kernels::linear(normed, p[2], p[3]), 1);
    const auto [share, chosen] = shares.max(1);
    // Rows by expert, each expert's through it, and back to their places.
    const auto order = at::argsort(chosen, /*stable=*/true, 0, false);
    const auto counts = at::bincount(chosen, {}, p[4].size(0)).cpu();
    const at::IntArrayRef sizes(counts.data_ptr<std::int64_t>(), std::size_t(counts.numel()));
    auto own = normed.index_select(0, order).split_with_sizes(sizes);
    const auto ups = p[4].unbind(), downs = p[5].unbind();
    for (std::size_t e = 0; e < own.size(); ++e) own[e] = Expert::apply(own[e], ups[e], downs[e]);
    // experts * sum over experts of (share of rows that go there) * (mean share), per picture.
    const auto there = at::one_hot(chosen, shares.size(1)).to(shares.options());
    const auto even = [&](std::int64_t begin, std::int64_t length) {
      const auto mean = [&](const at::Tensor& of) { return of.narrow(0, begin, length).mean(0); };
      return mean(there).mul(mean(shares)).sum().mul(double(shares.size(1))).view({1});
    };
    add_loss(batch, "balance", by_segment(batch.segments, shares.new_empty({0}), even), balance_);
    return rows.add(share.unsqueeze(1).mul(at::cat(own).index_select(0, order.argsort())));
  }

  const double balance_;
};

std::unique_ptr<Layer> make(const Config& c, int index, std::vector<Parameter> list) {
  if (index == 0 || index > c.depth) return std::make_unique<LinearLayer>(std::move(list));
  return std::make_unique<Mixture>(c.balance, std::move(list));
}

Status register_all() {
  return register_family(
      encoder_family<Config>("mixture", {fields, sizes, media, describe, works, make}));
}

}  // namespace

TROUPE_PLUGIN(register_all)
