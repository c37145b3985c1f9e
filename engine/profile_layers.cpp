#include "engine/profile_layers.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <time.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "engine/memory_count.hpp"
#include "kernels/deferred_gradients.hpp"
#include "kernels/packed_attention.hpp"
#include "models/widths.hpp"
#include "scheduler/roofline.hpp"

namespace troupe::engine {

namespace {

using scheduler::PartCost;

constexpr TokenCount kPackedLength = 64;  // Of the short sequences that show the linear part.
constexpr int kRepeats = 7;
constexpr double kEnoughMs = 150;  // Repetitions stop when a part of a point took this long.

/// Milliseconds of an unspecified start. With one operator thread all work is this thread's, and
/// its processor time leaves out what other programs take; several threads need the wall clock.
double now_ms() {
  timespec time{};
  clock_gettime(at::get_num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}
double ms_since(double begin_ms) { return now_ms() - begin_ms; }

template <class Function>
double bytes_kept(Function function) {
  const CountMemory count;
  const auto kept = function();
  return static_cast<double>(std::max<std::int64_t>(0, count.bytes()));
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Medians of what `run` returns, pass by pass, after a run that warms up.
template <class Run>
PartCost median_of(Run run) {
  run();
  std::vector<double> forward, input_grad, weight_grad;
  double spent_ms = 0;
  for (int i = 0; i < kRepeats && (i < 3 || spent_ms < kEnoughMs); ++i) {
    const PartCost cost = run();
    forward.push_back(cost.forward_ms);
    input_grad.push_back(cost.input_grad_ms);
    weight_grad.push_back(cost.weight_grad_ms);
    spent_ms += cost.forward_ms + cost.input_grad_ms + cost.weight_grad_ms;
  }
  return {median(forward), median(input_grad), median(weight_grad), 0};
}

/// Heads of a kind with attention.
struct AttentionShape {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = false;
};

std::optional<AttentionShape> attention_of(const ModuleConfig& module, const LayerKind& kind) {
  if (!kind.name.ends_with(".block")) return std::nullopt;
  if (const auto* c = std::get_if<VisionConfig>(&module.config))
    return AttentionShape{c->num_heads, c->num_heads, c->embed_dim / c->num_heads, false};
  if (const auto* c = std::get_if<AudioConfig>(&module.config))
    return AttentionShape{c->encoder_attention_heads, c->encoder_attention_heads,
                          c->d_model / c->encoder_attention_heads, false};
  const auto& c = std::get<LlmConfig>(module.config);
  return AttentionShape{c.num_attention_heads, c.num_key_value_heads,
                        c.head_dim > 0 ? c.head_dim : c.hidden_size / c.num_attention_heads, true};
}

/// The most square grid of `patches` (a power of two >= 16); sides are multiples of 4.
models::GridSize grid_of(std::int64_t patches) {
  std::int64_t height = 4;
  while (4 * height * height <= patches) height *= 2;
  return {height, patches / height};
}

/// One kind of layer, ready to run at any size.
class KindBench {
 public:
  KindBench(const JobSetup& setup, const ModuleConfig& module, const LayerKind& kind,
            std::unique_ptr<models::Layer> layer)
      : setup_(setup),
        module_(module),
        spec_(setup.model.at(kind.example.module)),
        attention_(attention_of(module, kind)),
        layer_(std::move(layer)),
        first_(kind.example.layer == 0 && spec_.kind != ModuleKind::projector),
        head_(spec_.kind == ModuleKind::llm && !first_ && !attention_) {}

  scheduler::ProfilePoint point(TokenCount tokens) {
    scheduler::ProfilePoint made;
    made.tokens = tokens;
    const auto segments = packed(tokens);
    made.linear = layer_cost(tokens, segments);
    if (!attention_) return made;
    made.attention = attention_cost(tokens, {tokens});
    const PartCost inside =
        segments.size() == 1 ? made.attention : attention_cost(tokens, segments);
    made.linear = {std::max(0.0, made.linear.forward_ms - inside.forward_ms),
                   std::max(0.0, made.linear.input_grad_ms - inside.input_grad_ms),
                   made.linear.weight_grad_ms,
                   std::max(0.0, made.linear.activation_bytes - inside.activation_bytes)};
    return made;
  }

  Bytes parameters() {
    Bytes bytes;
    for (const auto& parameter : layer_->parameters())
      bytes += Bytes{static_cast<std::int64_t>(parameter.value.nbytes())};
    return bytes;
  }

 private:
  at::TensorOptions options() const {
    return at::TensorOptions().dtype(setup_.layers.dtype).device(setup_.layers.device);
  }

  static std::vector<std::int64_t> packed(TokenCount tokens) {
    if (tokens <= kPackedLength) return {tokens};
    return std::vector<std::int64_t>(static_cast<std::size_t>(tokens / kPackedLength),
                                     kPackedLength);
  }

  models::PackedBatch batch_of(TokenCount tokens, std::vector<std::int64_t> segments) const {
    models::PackedBatch batch;
    if (head_) segments = {tokens + 1};  // A sequence's first label is never a target.
    batch.segments = std::move(segments);
    const auto ids = at::TensorOptions().dtype(at::kLong);
    if (const auto* vision = std::get_if<VisionConfig>(&module_.config)) {
      for (const auto length : batch.segments) batch.grids.push_back(grid_of(length));
      const auto columns = std::int64_t{vision->in_channels} * vision->temporal_patch_size *
                           vision->patch_size * vision->patch_size;
      if (first_) batch.input = at::randn({tokens, columns});
    } else if (const auto* audio = std::get_if<AudioConfig>(&module_.config)) {
      for (const auto length : batch.segments) batch.input_segments.push_back(2 * length);
      if (first_) batch.input = at::randn({2 * tokens, audio->num_mel_bins});
    } else if (const auto* llm = std::get_if<LlmConfig>(&module_.config)) {
      if (first_) batch.input = at::arange(tokens, ids).remainder(llm->vocab_size);
      if (head_) batch.labels = at::arange(tokens + 1, ids).remainder(llm->vocab_size);
    }
    return batch;
  }

  std::int64_t input_width() const {
    if (spec_.kind == ModuleKind::projector)
      return models::resolve_projector(module_, setup_.modules()).input_size;
    return spec_.hidden_width;
  }

  void drop_gradients() {
    for (auto& parameter : layer_->parameters()) parameter.value.mutable_grad() = at::Tensor{};
  }

  PartCost layer_cost(TokenCount tokens, const std::vector<std::int64_t>& segments) {
    auto batch = batch_of(tokens, segments);
    const at::Tensor media = batch.input;
    at::Tensor rows;
    if (!first_)
      rows = at::randn({head_ ? tokens + 1 : tokens, input_width()}, options())
                 .set_requires_grad(true);
    // Gradients lie where a stage keeps them, and are added to.
    for (auto& parameter : layer_->parameters())
      if (parameter.value.requires_grad())
        parameter.value.mutable_grad() =
            at::zeros(parameter.value.sizes(), parameter.value.options().requires_grad(false));
    const auto run = [&] {
      PartCost cost;
      double begin = now_ms();
      // A stage lays the media of its samples end to end before the first layer reads them.
      if (media.defined()) batch.input = media.clone();
      const at::Tensor output = layer_->forward(rows, batch);
      cost.forward_ms = ms_since(begin);
      const at::Tensor gradient = at::ones_like(output);
      if (rows.defined()) rows.mutable_grad() = at::Tensor{};
      const auto deferred = std::make_shared<kernels::DeferredGradients>();
      begin = now_ms();
      if (first_) {
        torch::autograd::backward({output}, {gradient});
        cost.weight_grad_ms = ms_since(begin);
        return cost;
      }
      {
        const kernels::DeferWeightGradients guard(deferred);
        torch::autograd::backward({output}, {gradient});
      }
      cost.input_grad_ms = ms_since(begin);
      begin = now_ms();
      const c10::NoGradGuard no_grad;
      deferred->run();
      cost.weight_grad_ms = ms_since(begin);
      return cost;
    };
    PartCost cost = median_of(run);
    cost.activation_bytes = bytes_kept([&] { return layer_->forward(rows, batch); });
    drop_gradients();
    return cost;
  }

  PartCost attention_cost(TokenCount tokens, const std::vector<std::int64_t>& segments) {
    const auto& shape = *attention_;
    const auto make = [&](std::int64_t heads) {
      return at::randn({tokens, heads, shape.head_dim}, options()).set_requires_grad(true);
    };
    const at::Tensor query = make(shape.heads), key = make(shape.kv_heads),
                     value = make(shape.kv_heads);
    const auto forward = [&] {
      return kernels::packed_attention(query, key, value, segments, shape.causal);
    };
    PartCost cost = median_of([&] {
      PartCost once;
      double begin = now_ms();
      const at::Tensor output = forward();
      once.forward_ms = ms_since(begin);
      const at::Tensor gradient = at::ones_like(output);
      for (const auto* leaf : {&query, &key, &value}) leaf->mutable_grad() = at::Tensor{};
      begin = now_ms();
      torch::autograd::backward({output}, {gradient});
      once.input_grad_ms = ms_since(begin);
      return once;
    });
    cost.activation_bytes = bytes_kept(forward);
    return cost;
  }

  const JobSetup& setup_;
  const ModuleConfig& module_;
  const ModuleSpec& spec_;
  const std::optional<AttentionShape> attention_;
  const std::unique_ptr<models::Layer> layer_;
  const bool first_, head_;
};

double total_ms(const scheduler::ProfilePoint& point) {
  double sum = 0;
  for (const auto* part : {&point.linear, &point.attention})
    sum += part->forward_ms + part->input_grad_ms + part->weight_grad_ms;
  return sum;
}

const ModuleConfig& config_of(const JobSetup& setup, ModuleId module) {
  const auto& name = setup.model.at(module).name;
  return *std::find_if(setup.modules().begin(), setup.modules().end(),
                       [&](const ModuleConfig& config) { return config.name == name; });
}

}  // namespace

std::vector<std::vector<std::string>> layer_kind_names(const JobSetup& setup) {
  std::vector<std::vector<std::string>> names;
  for (std::size_t m = 0; m < setup.model.modules.size(); ++m) {
    auto& list = names.emplace_back();
    for (const auto& work : scheduler::layer_works(config_of(setup, ModuleId{m})))
      list.push_back(work.kind);
  }
  return names;
}

std::vector<LayerKind> layer_kinds(const JobSetup& setup) {
  std::vector<LayerKind> kinds;
  const auto names = layer_kind_names(setup);
  for (std::size_t m = 0; m < names.size(); ++m)
    for (std::size_t l = 0; l < names[m].size(); ++l)
      if (l == 0 || names[m][l] != names[m][l - 1])
        kinds.push_back({names[m][l], {ModuleId{m}, static_cast<std::int32_t>(l)}});
  return kinds;
}

Result<scheduler::LayerProfile> profile_layer(const JobSetup& setup, const LayerKind& kind,
                                              const LayerProfileOptions& options) {
  const ModuleConfig& module = config_of(setup, kind.example.module);
  auto layer_options = setup.layers;
  layer_options.trainable = true;  // Freezing is the planner's affair.
  auto layer = models::make_layer(module, setup.modules(), kind.example.layer, layer_options);
  if (!layer.ok()) return std::move(layer).error();
  scheduler::LayerProfile profile{kind.name, {}, scheduler::CostOrigin::measured, {}, {}};
  try {
    KindBench bench(setup, module, kind, std::move(layer).value());
    profile.parameters = bench.parameters();
    const auto begin = std::chrono::steady_clock::now();
    for (TokenCount tokens = 16; tokens <= options.tokens_max; tokens *= 2) {
      profile.points.push_back(bench.point(tokens));
      // Twice the tokens take up to four times as long, and several runs.
      const double next_s = 4 * total_ms(profile.points.back()) / 1000;
      const double left_s =
          options.budget_s -
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (profile.points.size() >= 2 && (next_s > options.point_s_max || 4 * next_s > left_s))
        break;
    }
  } catch (const c10::Error& error) {
    return Error{Errc::internal, "LibTorch: " + error.msg(), kind.name, {}};
  }
  return profile;
}

}  // namespace troupe::engine
