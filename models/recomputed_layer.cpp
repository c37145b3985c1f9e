#include "models/recomputed_layer.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

namespace troupe::models {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What a backward runs again. The layer outlives its graphs, as a stage's parameters do.
struct Run : torch::CustomClassHolder {
  Run(Layer& called, const PackedBatch& read) : layer(called), batch(read) {
    // Its losses are outputs, whose graph holds this.
    if (batch.losses) batch.losses = std::make_shared<AuxiliaryLosses>();
  }
  Layer& layer;
  PackedBatch batch;       ///< Tensors are shared, not copied.
  AuxiliaryLosses losses;  ///< Of the forward, whose values are outputs behind the rows.
};

/// Runs the layer with losses of its own. Returns rows out.
at::Tensor run(Run& run, const at::Tensor& rows, AuxiliaryLosses& losses) {
  PackedBatch batch = run.batch;
  if (batch.losses) batch.losses = std::make_shared<AuxiliaryLosses>();
  at::Tensor out = run.layer.forward(rows, batch);
  if (batch.losses) losses = std::move(*batch.losses);
  return out;
}

struct Recompute : torch::autograd::Function<Recompute> {
  /// `trained`: requires grad where a parameter does, so that a layer whose input needs no gradient
  /// has a backward too. Returns rows out, then the values of each loss.
  static variable_list forward(AutogradContext* context, const at::Tensor& rows,
                               const at::Tensor& /*trained*/, const c10::intrusive_ptr<Run>& own) {
    context->save_for_backward({rows});
    context->saved_data["run"] = at::IValue::make_capsule(own);
    variable_list outputs{run(*own, rows, own->losses)};
    for (AuxiliaryLoss& loss : own->losses) outputs.push_back(std::exchange(loss.values, {}));
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto holder = context->saved_data["run"].toCapsule();
    auto& own = static_cast<Run&>(*holder);
    const at::Tensor rows =
        context->get_saved_variables()[0].detach().set_requires_grad(context->needs_input_grad(0));
    variable_list roots, given;
    {
      const c10::AutoGradMode records(true);
      AuxiliaryLosses losses;
      const at::Tensor out = run(own, rows, losses);
      const auto add = [&](const at::Tensor& value, const at::Tensor& gradient) {
        if (!gradient.defined() || !value.requires_grad()) return;
        roots.push_back(value);
        given.push_back(gradient);
      };
      add(out, gradients[0]);
      for (std::size_t i = 0; i < losses.size(); ++i) add(losses[i].values, gradients[i + 1]);
    }
    if (!roots.empty()) torch::autograd::backward(roots, given);
    return {rows.grad(), {}, {}};
  }
};

class RecomputedLayer final : public Layer {
 public:
  explicit RecomputedLayer(std::unique_ptr<Layer> layer) : layer_(std::move(layer)) {}

  at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) override {
    const auto& own = layer_->parameters();
    const bool trains = std::any_of(own.begin(), own.end(), [](const Parameter& parameter) {
      return parameter.value.defined() && parameter.value.requires_grad();
    });
    if (!c10::GradMode::is_enabled() || !rows.defined() || !(trains || rows.requires_grad()))
      return layer_->forward(rows, batch);
    const auto again = c10::make_intrusive<Run>(*layer_, batch);
    const at::Tensor trained = at::empty({0}, rows.options()).set_requires_grad(trains);
    auto outputs = Recompute::apply(rows, trained, again);
    for (std::size_t i = 0; i < again->losses.size(); ++i)
      batch.losses->push_back(
          {again->losses[i].name, again->losses[i].weight, std::move(outputs[i + 1])});
    return std::move(outputs[0]);
  }

  std::vector<Parameter>& parameters() override { return layer_->parameters(); }

 private:
  std::unique_ptr<Layer> layer_;
};

}  // namespace

std::unique_ptr<Layer> recomputed(std::unique_ptr<Layer> layer) {
  return std::make_unique<RecomputedLayer>(std::move(layer));
}

}  // namespace troupe::models
