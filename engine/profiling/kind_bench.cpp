#include "engine/profiling/kind_bench.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "engine/execution/mask_store.hpp"
#include "engine/profiling/measured_attention.hpp"
#include "engine/profiling/measured_kind.hpp"
#include "engine/profiling/plausible_values.hpp"
#include "engine/state/memory_count.hpp"
#include "kernels/deferred_gradients.hpp"
#include "models/family/registry.hpp"
#include "models/family/widths.hpp"
#include "models/text_batch.hpp"

namespace troupe::engine {

namespace {

using scheduler::PartCost;

/// Of the short sequences that show the linear part, whose attention is taken off again: on a
/// processor next to nothing. A device's kernels start anew for each, which takes longer than what
/// they and the rest of the layer do: what is left would be the scatter of a large number.
constexpr TokenCount kPackedLength = 64, kPackedOnDevice = 1024;
constexpr MeasuredRuns::Limits kRuns{3, 7, 40};
constexpr std::int64_t kCopies = 4;
constexpr std::int64_t kColdBytes = std::int64_t{16} << 20;  // More than a core's own caches hold.

template <class Function>
double bytes_kept(Function function) {
  const CountMemory count;
  const auto kept = function();
  return static_cast<double>(std::max<std::int64_t>(0, count.bytes()));
}

using Layers = std::vector<std::unique_ptr<models::Layer>>;

Bytes bytes_of(models::Layer& layer) {
  Bytes bytes;
  for (const auto& parameter : layer.parameters())
    bytes += Bytes{static_cast<std::int64_t>(parameter.value.nbytes())};
  return bytes;
}

/// Copies of the kind's example; a single one where its parameters alone fill the caches.
Result<Layers> make_layers(const JobSetup& setup, const ModuleConfig& module,
                           const LayerKind& kind) {
  auto options = setup.layers;
  options.trainable = true;  // Freezing is the planner's affair, and so is recomputing.
  options.recompute = options.draws = false;
  Layers layers;
  do {
    auto layer = models::make_layer(module, setup.modules(), kind.example.layer, options);
    if (!layer.ok()) return std::move(layer).error();
    fill_plausibly(*layer.value());
    layers.push_back(std::move(layer).value());
  } while (std::ssize(layers) < std::min<std::int64_t>(kCopies, kind.layers) &&
           bytes_of(*layers.front()).count() < kColdBytes);
  return layers;
}

}  // namespace

/// A stage runs all its layers forward and then all backward, and other layers before that, so that
/// a layer finds neither its parameters nor its activations in the core's caches. One layer alone,
/// again and again, would find both and seem a tenth faster than it is: small ones run as several
/// copies, one after another, as many as a module has in a row.
class KindBench::Bench {
 public:
  Bench(const JobSetup& setup, const ModuleConfig& module, const LayerKind& kind, Layers layers,
        QuietWatch& watch)
      : setup_(setup),
        module_(module),
        spec_(setup.model.at(kind.example.module)),
        attention_(work_of(setup, kind).attention),
        lists_(gpu_lists_of(setup.job)),
        media_(models::media_input(module)),
        watch_(watch),
        layers_(std::move(layers)),
        first_(kind.example.layer == 0 && spec_.kind != ModuleKind::projector),
        head_(spec_.kind == ModuleKind::llm &&
              kind.example.layer + 1 == static_cast<std::int32_t>(spec_.layers.size())) {}

  bool begin(TokenCount tokens) {
    const auto segments = packed(tokens);
    const auto alone = make_copy(tokens, batch_of(tokens, segments));
    size_ = Size{};
    size_.tokens = tokens;
    size_.activation_bytes = kept_by_forward(alone);
    size_.copies = make_copies(tokens, alone.batch);
    make_gradients();
    if (attention_) {
      size_.whole = attention_of_copies(tokens, {tokens});
      if (segments.size() > 1) size_.inside = attention_of_copies(tokens, segments);
    }
    forward_once();
    backward_once();
    return size_.activation_bytes * static_cast<double>(copies_) < double{kColdBytes};
  }

  void forward() {
    watch_.begin(size_.reading);
    forward_once();
    watch_.pause(size_.reading);
  }

  bool backward() {
    watch_.resume(size_.reading);
    backward_once();
    watch_.end(size_.reading);
    size_.layer_runs.add(size_.cost.layer, size_.reading);
    if (size_.whole) size_.whole->runs.add(size_.cost.whole, size_.reading);
    if (size_.inside) size_.inside->runs.add(size_.cost.inside, size_.reading);
    return size_.layer_runs.wants_more(watch_);
  }

  MeasuredPoint finish() {
    MeasuredPoint made;
    made.readings = size_.layer_runs.kept_readings(watch_);
    made.repeated = size_.layer_runs.repeated();
    made.wall_ms = size_.layer_runs.wall_ms();
    auto& point = made.point;
    point.tokens = size_.tokens;
    point.linear = per_copy(size_.layer_runs.medians(watch_));
    point.linear.activation_bytes = size_.activation_bytes;
    if (attention_) {
      point.attention = cost_of(*size_.whole);
      const PartCost inside = size_.inside ? cost_of(*size_.inside) : point.attention;
      point.linear = {std::max(0.0, point.linear.forward_ms - inside.forward_ms),
                      std::max(0.0, point.linear.input_grad_ms - inside.input_grad_ms),
                      point.linear.weight_grad_ms,
                      std::max(0.0, point.linear.activation_bytes - inside.activation_bytes)};
    }
    size_ = Size{};
    drop_gradients();
    return made;
  }

  Bytes parameters() { return bytes_of(*layers_.front()); }

  /// Layers that ran at the last point, one after another.
  std::size_t copies() const { return copies_; }

 private:
  /// What a copy reads. Blocks read what the block before them made.
  struct Copy {
    models::PackedBatch batch;
    at::Tensor rows, output;
  };

  /// The attention of the copies without the rest of their layers.
  struct Attention {
    MeasuredAttention attend;
    std::vector<std::array<at::Tensor, 3>> inputs;  // Query, key, value.
    std::vector<at::Tensor> outputs;
    MeasuredRuns runs{kRuns};
    double activation_bytes = 0;
  };

  struct RunCost {
    PartCost layer, whole, inside;
  };

  /// The size that is being measured.
  struct Size {
    TokenCount tokens = 0;
    std::vector<Copy> copies;
    double activation_bytes = 0;  // Of one copy.
    MeasuredRuns layer_runs{kRuns};
    RunCost cost;                            // Of the run under way.
    Reading reading;                         // The same.
    std::optional<Attention> whole, inside;  // On one sequence; as inside the copies, if not that.
  };

  double ms_since(double begin_ms) const { return watch_.operator_ms() - begin_ms; }

  void forward_once() {
    size_.cost = {};
    size_.cost.layer.forward_ms = forward_ms(size_.copies);
    if (size_.whole) size_.cost.whole.forward_ms = forward_ms(*size_.whole);
    if (size_.inside) size_.cost.inside.forward_ms = forward_ms(*size_.inside);
  }

  void backward_once() {
    if (size_.inside) size_.cost.inside.input_grad_ms = backward_ms(*size_.inside);
    if (size_.whole) size_.cost.whole.input_grad_ms = backward_ms(*size_.whole);
    add_backward(size_.copies, size_.cost.layer);
  }

  at::TensorOptions options() const {
    return at::TensorOptions().dtype(setup_.layers.dtype).device(setup_.layers.device);
  }

  std::vector<std::int64_t> packed(TokenCount tokens) const {
    const bool on_host = setup_.layers.device.is_cpu();
    const auto length =
        std::min({tokens, measured_size(media_, on_host ? kPackedLength : kPackedOnDevice),
                  sequence_max(media_)});
    return std::vector<std::int64_t>(static_cast<std::size_t>(tokens / length), length);
  }

  models::PackedBatch batch_of(TokenCount tokens, std::vector<std::int64_t> segments) const {
    if (head_) segments = {tokens + 1};  // A sequence's first label is never a target.
    std::vector<TokenSample> texts;
    for (const auto length : segments) texts.push_back({length, {}});
    auto batch =
        models::text_batch(texts, spec_.attention, lists_).value();  // Encoders read lengths alone.
    if (media_.medium == Medium::image) {
      for (const auto length : batch.segments)
        batch.grids.push_back(squarest_grid(media_.vision, length));
      if (first_) batch.input = at::randn({tokens, media_.vision.columns()});
    } else if (media_.medium == Medium::audio) {
      const auto& audio = media_.audio;
      for (const auto length : batch.segments)
        batch.input_segments.push_back(audio.frames_per_row * length);
      if (first_) batch.input = at::randn({audio.frames_per_row * tokens, audio.mel_bins});
    } else if (reads_text(spec_.kind)) {
      const auto vocabulary = models::checked_family(module_).sizes(module_.config).vocabulary;
      const auto ids = at::arange(head_ ? tokens + 1 : tokens, at::kLong).remainder(vocabulary);
      if (first_) batch.input = ids;
      if (head_) batch.labels = ids;
      if (head_) batch.taught = any_taught_rows(setup_, ids.numel());
    }
    return batch;
  }

  std::int64_t input_width() const {
    if (spec_.kind == ModuleKind::projector) return models::input_width(module_, setup_.modules());
    return spec_.hidden_width;
  }

  /// Gradients lie where a stage keeps them, and are added to.
  void make_gradients() {
    for (auto& layer : layers_)
      for (auto& parameter : layer->parameters())
        if (parameter.value.requires_grad())
          parameter.value.mutable_grad() =
              at::zeros(parameter.value.sizes(), parameter.value.options().requires_grad(false));
  }

  void drop_gradients() {
    for (auto& layer : layers_)
      for (auto& parameter : layer->parameters()) parameter.value.mutable_grad() = at::Tensor{};
  }

  Copy make_copy(TokenCount tokens, const models::PackedBatch& batch) const {
    Copy copy{batch, {}, {}};
    copy.batch.losses = std::make_shared<models::AuxiliaryLosses>();
    if (!first_)
      copy.rows = at::randn({head_ ? tokens + 1 : tokens, input_width()}, options())
                      .set_requires_grad(true);
    return copy;
  }

  /// As many as leave the caches cold between a forward and its backward. They share one batch, as
  /// the layers of a stage do: its mask with its work lists.
  std::vector<Copy> make_copies(TokenCount tokens, const models::PackedBatch& batch) {
    const auto wanted =
        kColdBytes / std::max<std::int64_t>(1, static_cast<std::int64_t>(size_.activation_bytes));
    copies_ = std::clamp<std::size_t>(static_cast<std::size_t>(wanted), 1, layers_.size());
    std::vector<Copy> copies;
    for (std::size_t i = 0; i < copies_; ++i) copies.push_back(make_copy(tokens, batch));
    return copies;
  }

  double kept_by_forward(const Copy& copy) {
    return bytes_kept([&] { return forward(*layers_.front(), copy, copy.rows); });
  }

  /// A stage lays the media of its samples end to end before the first layer reads them; they are
  /// kept as long as the layer's backward needs them.
  static at::Tensor forward(models::Layer& layer, const Copy& copy, const at::Tensor& rows) {
    models::PackedBatch batch = copy.batch;
    batch.losses->clear();  // Of the forward before.
    if (batch.input.defined()) batch.input = batch.input.clone();
    return layer.forward(rows, batch);
  }

  double forward_ms(std::vector<Copy>& copies) {
    const double begin = watch_.operator_ms();
    for (std::size_t i = 0; i < copies.size(); ++i)
      copies[i].output = forward(*layers_[i], copies[i],
                                 attention_ && i > 0 ? copies[i - 1].output : copies[i].rows);
    return ms_since(begin);
  }

  void add_backward(std::vector<Copy>& copies, PartCost& cost) {
    std::vector<at::Tensor> outputs, gradients;
    for (Copy& copy : copies) {
      if (copy.rows.defined()) copy.rows.mutable_grad() = at::Tensor{};
      at::Tensor output = std::move(copy.output);
      models::append_roots(*copy.batch.losses, /*segments=*/1, outputs, gradients);
      if (attention_ && &copy != &copies.back()) continue;
      gradients.push_back(at::ones_like(output));
      outputs.push_back(std::move(output));
    }
    const auto deferred = std::make_shared<kernels::DeferredGradients>();
    double begin = watch_.operator_ms();
    if (first_) {
      torch::autograd::backward(outputs, gradients);
      cost.weight_grad_ms = ms_since(begin);
      return;
    }
    {
      const kernels::DeferWeightGradients guard(deferred);
      torch::autograd::backward(outputs, gradients);
    }
    cost.input_grad_ms = ms_since(begin);
    begin = watch_.operator_ms();
    const c10::NoGradGuard no_grad;
    deferred->run();
    cost.weight_grad_ms = ms_since(begin);
  }

  PartCost per_copy(const PartCost& cost) const {
    const double share = 1.0 / static_cast<double>(copies_);
    return {cost.forward_ms * share, cost.input_grad_ms * share, cost.weight_grad_ms * share, 0};
  }

  Attention attention_of_copies(TokenCount tokens, std::vector<std::int64_t> segments) const {
    const auto make = [&](std::int64_t heads) {
      return at::randn({tokens, heads, attention_->head_dim}, options()).set_requires_grad(true);
    };
    MeasuredAttention attend(*attention_, std::move(segments), attention_->causal, lists_);
    Attention made{std::move(attend), {}, {}, MeasuredRuns{kRuns}, 0};
    for (std::size_t i = 0; i < copies_; ++i)
      made.inputs.push_back(
          {make(attention_->heads), make(attention_->kv_heads), make(attention_->kv_heads)});
    made.activation_bytes = bytes_kept([&] { return made.attend(made.inputs.front()); });
    return made;
  }

  double forward_ms(Attention& attention) const {
    const double begin = watch_.operator_ms();
    for (const auto& input : attention.inputs) attention.outputs.push_back(attention.attend(input));
    return ms_since(begin);
  }

  double backward_ms(Attention& attention) const {
    const auto outputs = std::exchange(attention.outputs, {});
    std::vector<at::Tensor> gradients;
    for (const auto& output : outputs) gradients.push_back(at::ones_like(output));
    for (const auto& input : attention.inputs)
      for (const auto& leaf : input) leaf.mutable_grad() = at::Tensor{};
    const double begin = watch_.operator_ms();
    torch::autograd::backward(outputs, gradients);
    return ms_since(begin);
  }

  PartCost cost_of(Attention& attention) const {
    PartCost cost = per_copy(attention.runs.medians(watch_));
    cost.activation_bytes = attention.activation_bytes;
    return cost;
  }

  const JobSetup& setup_;
  const ModuleConfig& module_;
  const ModuleSpec& spec_;
  const std::optional<AttentionShape> attention_;
  const kernels::GpuLists lists_;  // Made ahead, as in training.
  const MediaInput media_;
  QuietWatch& watch_;
  const Layers layers_;
  const bool first_, head_;
  std::size_t copies_ = 1;
  Size size_;
};

KindBench::KindBench(std::unique_ptr<Bench> bench) : bench_(std::move(bench)) {}
KindBench::KindBench(KindBench&&) noexcept = default;
KindBench& KindBench::operator=(KindBench&&) noexcept = default;
KindBench::~KindBench() = default;

Result<KindBench> KindBench::create(const JobSetup& setup, const LayerKind& kind,
                                    QuietWatch& watch) {
  const ModuleConfig& module = config_of(setup, kind.example.module);
  auto layers = make_layers(setup, module, kind);
  if (!layers.ok()) return std::move(layers).error();
  return KindBench(std::make_unique<Bench>(setup, module, kind, std::move(layers).value(), watch));
}

bool KindBench::begin(TokenCount tokens) { return bench_->begin(tokens); }
void KindBench::forward() { bench_->forward(); }
bool KindBench::backward() { return bench_->backward(); }
MeasuredPoint KindBench::finish() { return bench_->finish(); }
Bytes KindBench::parameters() { return bench_->parameters(); }
std::size_t KindBench::copies() const { return bench_->copies(); }

}  // namespace troupe::engine
