// Stages of encoders that keep nothing of a part but the rows that came in: its backward runs the
// layers once more. Written on `StageProgram` alone, without the engine's own stage.

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/execution/stage_kinds.hpp"
#include "engine/execution/stage_layers.hpp"
#include "runtime/plugins/entry_point.hpp"

namespace {

using namespace troupe;
using namespace troupe::engine;

struct Frugal : StageProgram {
  explicit Frugal(StageLayers layers) : layers_(std::move(layers)) {}
  Status begin(const IterationPlan& iteration, const data::DecodedSamples& samples) override {
    abandon();
    iteration_ = &iteration, samples_ = &samples;
    layers_.begin(iteration);
    return Done{};
  }
  void abandon() override { arrived_.clear(), outgoing_.clear(), gradients_.clear(); }
  Status forward(PartKey key) override {
    const c10::NoGradGuard no_grad;
    const auto outputs = run(key);
    if (!outputs.ok()) return outputs.error();
    for (const MessageId id : layers_.outgoing(key)) {
      const auto rows = layers_.rows_of(id, outputs.value());
      if (!rows.ok()) return rows.error();
      outgoing_[id] = rows.value();
    }
    if (!layers_.traffic().backward.contains(key)) forget(key);
    return Done{};
  }
  Status backward(PartKey key) override {
    const auto outputs = run(key);  // Again, and for autograd now.
    if (!outputs.ok()) return outputs.error();
    std::vector<at::Tensor> roots, gradients;
    for (std::size_t r = 0; r < outputs.value().size(); ++r) {
      const at::Tensor& output = outputs.value()[r];
      if (!output.defined() || !output.requires_grad()) continue;
      const auto gradient = layers_.output_gradient(r, key, output, gradients_);
      // Else the next run goes on from it.
      if (gradient.defined()) roots.push_back(output), gradients.push_back(gradient);
    }
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
    layers_.harvest();
    forget(key);
    return Done{};
  }
  Status backward_input(PartKey key) override { return backward(key); }
  Status backward_weight(PartKey) override { return Done{}; }  // They came along.
  void accept_rows(MessageId id, at::Tensor rows) override {
    arrived_[id] = rows.requires_grad_(iteration_->at(id).has_backward);
  }
  Result<at::Tensor> rows_for(MessageId id) override { return StageLayers::take(outgoing_, id); }
  void accept_gradient(MessageId id, at::Tensor gradient) override { gradients_[id] = gradient; }
  Result<at::Tensor> gradient_for(MessageId id) override {
    return StageLayers::take_gradient(arrived_, id);
  }
  GroupState& state(GroupId id, LayerId layer) override { return layers_.state(id, layer); }
  std::vector<models::Parameter*> parameters() override { return layers_.parameters(); }
  std::vector<PartLoss> losses() const override { return {}; }  // The llm has them.
  Bytes activations() const override {
    std::size_t bytes = 0;
    for (const auto* tensors : {&arrived_, &outgoing_, &gradients_})
      for (const auto& [id, tensor] : *tensors) bytes += tensor.nbytes();
    return Bytes{std::int64_t(bytes)};
  }

 private:
  // What nobody asks for any more: gradients that went in, and rows that none goes back to.
  void forget(PartKey key) {
    for (const MessageId id : layers_.outgoing(key)) gradients_.erase(id);
    for (const MessageId id : layers_.incoming(key))
      if (!iteration_->at(id).has_backward) arrived_.erase(id);
  }
  // What each run makes of a part: [rows, width]; undefined where it has no rows for it.
  Result<std::vector<at::Tensor>> run(PartKey key) {
    std::vector<at::Tensor> outputs;
    for (std::size_t r = 0; r < layers_.runs().size(); ++r) {
      const auto batch = layers_.encoder_batch(r, key, *samples_);
      if (!batch.ok()) return batch.error();
      const auto rows = layers_.input_rows(r, key, outputs, arrived_);
      if (!rows.ok()) return rows.error();
      at::Tensor& output = outputs.emplace_back(rows.value());
      if (batch.value().segments.empty()) continue;
      for (auto& layer : layers_.runs()[r].layers) output = layer->forward(output, batch.value());
    }
    return outputs;
  }
  StageLayers layers_;
  const IterationPlan* iteration_ = nullptr;
  const data::DecodedSamples* samples_ = nullptr;
  std::map<MessageId, at::Tensor> arrived_, outgoing_, gradients_;
};

Result<std::unique_ptr<StageProgram>> make(const StageRequest& request) {
  for (const LayerRun& run : request.plan.at(request.id).runs)
    if (!encoder_of(request.plan.model, run.module).valid())
      return Error{Errc::infeasible, "runs encoders alone", "plugins", "name their families"};
  auto layers = StageLayers::create(request);
  if (!layers.ok()) return layers.error();
  return std::unique_ptr<StageProgram>(std::make_unique<Frugal>(std::move(layers).value()));
}

Status register_all() {
  StageKind kind{"frugal", {"qwen2-vl", "whisper"}, make};
  kind.costs = [](const LayerCosts& own, const CostedRows&) -> LayerCosts {
    return {own.forward_ms, own.forward_ms + own.input_gradient_ms, own.weight_gradient_ms, 0};
  };
  return register_stage(kind);
}

}  // namespace

TROUPE_PLUGIN(register_all)
