// A vision encoder of mixtures: each patch goes through one of several experts, whose backward is
// written by hand, and a loss of the layer's own keeps the experts busy alike.

#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/linear.hpp"
#include "kernels/norms.hpp"
#include "models/plugin.hpp"

namespace {

using namespace troupe;
using namespace troupe::models;

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

ModuleDescription describe(const ModuleConfig& module, const Widths&) {
  const auto& c = module.config.as<Config>();
  ModuleDescription made{{}, c.width, c.hidden_size};
  for (int i = 0; i < c.depth + 2; ++i) {
    const bool first = i == 0, last = i > c.depth;
    const auto name = module.name + (first  ? ".embed"
                                     : last ? ".head"
                                            : ".mixtures." + std::to_string(i - 1));
    auto& layer = made.layers.emplace_back(LayerDescription{name, {}});
    if (first) add_linear(layer, name, c.width, media(c).vision.columns());
    if (last) add_linear(layer, name, c.hidden_size, c.width);
    if (first || last) continue;
    add_norm(layer, name + ".norm", c.width);
    add_linear(layer, name + ".router", c.experts, c.width);
    layer.parameters.push_back({name + ".up", {c.experts, c.expert_width, c.width}});
    layer.parameters.push_back({name + ".down", {c.experts, c.width, c.expert_width}});
  }
  return made;
}

std::vector<LayerWork> works(const ModuleConfig& module, const Widths&) {
  const auto& c = module.config.as<Config>();
  const double width = c.width, columns = media(c).vision.columns();
  const double mixture = width * (c.experts + 2 * c.expert_width);  // Of what one patch passes.
  return surrounded(dense_work(module.name + ".embed", columns * width, c.width, width),
                    dense_work(module.name + ".mixture", mixture, c.width, 3 * width), c.depth,
                    dense_work(module.name + ".head", width * c.hidden_size, c.width, width));
}

// rows: [n, width]; chosen: [n], an expert of each; up: [experts, wide, width]; down: [experts,
// width, wide]. Keeps its arguments and the middle of the experts.
struct Experts : torch::autograd::Function<Experts> {
  using Context = torch::autograd::AutogradContext;
  using List = torch::autograd::variable_list;

  static at::Tensor forward(Context* context, const at::Tensor& rows, const at::Tensor& chosen,
                            const at::Tensor& up, const at::Tensor& down) {
    auto middle = rows.new_zeros({rows.size(0), up.size(1)}), out = at::zeros_like(rows);
    for (std::int64_t e = 0; e < up.size(0); ++e) {
      const auto own = chosen.eq(e).nonzero().squeeze(1);
      const auto wide = at::linear(rows.index_select(0, own), up[e]).relu();
      middle.index_copy_(0, own, wide);
      out.index_copy_(0, own, at::linear(wide, down[e]));
    }
    context->save_for_backward({rows, chosen, up, down, middle});
    return out;
  }

  static List backward(Context* context, List gradients) {
    const auto saved = context->get_saved_variables();
    const auto &rows = saved[0], &chosen = saved[1], &up = saved[2], &down = saved[3];
    auto d_rows = at::zeros_like(rows), d_up = at::zeros_like(up), d_down = at::zeros_like(down);
    for (std::int64_t e = 0; e < up.size(0); ++e) {
      const auto own = chosen.eq(e).nonzero().squeeze(1);
      const auto gradient = gradients[0].index_select(0, own), wide = saved[4].index_select(0, own);
      d_down[e].copy_(gradient.t().matmul(wide));
      const auto d_wide = gradient.matmul(down[e]).mul(wide.gt(0));
      d_up[e].copy_(d_wide.t().matmul(rows.index_select(0, own)));
      d_rows.index_copy_(0, own, d_wide.matmul(up[e]));
    }
    return {d_rows, {}, d_up, d_down};
  }
};

struct Dense : ParameterLayer {
  using ParameterLayer::ParameterLayer;
  at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) override {
    const auto& from = rows.defined() ? rows : batch.input;  // The first layer reads patches.
    return kernels::linear(from.to((*this)[0].options()), (*this)[0], (*this)[1]);
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
    keep_balance(shares, chosen, batch);
    return rows.add(share.unsqueeze(1).mul(Experts::apply(normed, chosen, p[4], p[5])));
  }

  /// experts * sum over experts of (share of patches that go there) * (mean share), per picture.
  void keep_balance(const at::Tensor& shares, const at::Tensor& chosen, const PackedBatch& batch) {
    const auto there = at::one_hot(chosen, shares.size(1)).to(shares.options());
    std::vector<at::Tensor> values{shares.new_empty({0})};
    for (std::int64_t begin = 0; const auto length : batch.segments) {
      const auto busy = there.narrow(0, begin, length).mean(0);
      const auto mean = shares.narrow(0, begin, length).mean(0);
      values.push_back(busy.mul(mean).sum().mul(double(shares.size(1))).view({1}));
      begin += length;
    }
    add_loss(batch, "balance", at::cat(values), balance_);
  }

  const double balance_;
};

std::unique_ptr<Layer> make(const ModuleConfig& module, int index, std::vector<Parameter> list) {
  const auto& c = module.config.as<Config>();
  if (index == 0 || index > c.depth) return std::make_unique<Dense>(std::move(list));
  return std::make_unique<Mixture>(c.balance, std::move(list));
}

Status register_all() {
  Family family{"mixture", ModuleKind::encoder, Config{}};
  family.fields = fields_of(fields), family.sizes = asked(sizes), family.media = asked(media);
  family.describe = describe, family.works = works, family.make = make;
  return register_family(std::move(family));
}

}  // namespace

TROUPE_PLUGIN(register_all)
