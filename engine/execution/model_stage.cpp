#include "engine/execution/model_stage.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/execution/stage_kinds.hpp"
#include "engine/state/memory_count.hpp"

namespace troupe::engine {

Result<std::unique_ptr<ModelStage>> ModelStage::create(const ParallelPlan& plan, StageId id,
                                                       const std::vector<ModuleConfig>& modules,
                                                       const models::LayerOptions& options,
                                                       const StateStore& store, MaskStore* masks) {
  auto layers = StageLayers::create({plan, id, modules, options, store});
  if (!layers.ok()) return std::move(layers).error();
  return std::unique_ptr<ModelStage>(new ModelStage(plan, id, std::move(layers).value(), masks));
}

Status ModelStage::begin(const IterationPlan& plan, const data::DecodedSamples& samples) {
  abandon();
  iteration_ = &plan;
  samples_ = &samples;
  layers_.begin(plan);
  return Done{};
}

void ModelStage::abandon() {
  flights_.clear();
  losses_.clear();
  auxiliary_.clear();
  activations_ = Bytes{};
}

bool ModelStage::makes_losses(const Run& run) const {
  return run.ends_module && run.range.module == plan_.model.llm();
}

void ModelStage::accept_rows(MessageId message, at::Tensor rows) {
  if (iteration_->at(message).has_backward) rows.requires_grad_(true);
  Flight& flight = this->flight(destination_part(message));
  hold(flight, static_cast<std::int64_t>(rows.nbytes()));
  flight.arrived[message] = std::move(rows);
}

void ModelStage::accept_gradient(MessageId message, at::Tensor gradient) {
  Flight& flight = this->flight(source_part(message));
  hold(flight, static_cast<std::int64_t>(gradient.nbytes()));
  flight.gradients[message] = std::move(gradient);
}

void ModelStage::hold(Flight& flight, std::int64_t bytes) {
  flight.activations += Bytes{bytes};
  activations_ += Bytes{bytes};
}

void ModelStage::let_go(Flight& flight) {
  activations_ -= flight.activations;
  flight.activations = Bytes{};
}

Result<at::Tensor> ModelStage::run_layers(std::size_t run_index, PartKey part, Flight& flight) {
  const Run& run = runs()[run_index];
  auto batch = pack(run_index, part, flight);
  if (!batch.ok()) return std::move(batch).error();
  if (batch.value().segments.empty()) return at::Tensor{};
  auto rows = layers_.input_rows(run_index, part, flight.outputs, flight.arrived);
  if (!rows.ok()) return rows;
  at::Tensor value = std::move(rows).value();
  batch.value().losses = std::make_shared<models::AuxiliaryLosses>();
  for (auto& layer : run.layers) value = layer->forward(value, batch.value());
  // The next run, or the next stage, takes each sample's rows by their place, and its loss.
  if (auto fine = layers_.check_output(run_index, part, value); !fine.ok()) return fine.error();
  flight.auxiliary[run_index] = batch.value().losses;
  for (const models::AuxiliaryLoss& loss : *batch.value().losses)
    auxiliary_.emplace_back(part, run.range.module,
                            models::AuxiliaryLoss{loss.name, loss.weight, models::sum_of(loss)});
  return value;
}

/// A node has its own samples alone, and is told what all of them have.
std::int64_t ModelStage::segments_of_batch(ModuleId module) const {
  const auto& counted = iteration_->segments;
  return counted.empty() ? segment_count(plan_.model, module, iteration_->samples)
                         : counted[module.index()];
}

Status ModelStage::forward(PartKey part) {
  Flight& flight = this->flight(part);
  flight.outputs.assign(runs().size(), at::Tensor{});
  flight.auxiliary.assign(runs().size(), nullptr);
  const CountMemory count;
  std::optional<SavedTensors::Collect> collect;
  if (layers_.traffic().offloaded.contains(part)) collect.emplace(flight.saved.emplace());
  for (std::size_t i = 0; i < runs().size(); ++i) {
    auto output = run_layers(i, part, flight);
    if (!output.ok()) return std::move(output).error();
    flight.outputs[i] = std::move(output).value();
    if (flight.outputs[i].defined() && makes_losses(runs()[i]))
      losses_.emplace_back(part, flight.outputs[i].detach());
  }
  collect.reset();
  hold(flight, count.bytes());
  if (viewer_ != nullptr) show_outputs(flight);
  flight.unsent = layers_.outgoing(part).size();
  if (flight.unsent == 0) release(part);
  return Done{};
}

/// Forgets a part that no backward will come for, once all its rows are on their way.
void ModelStage::release(PartKey part) {
  Flight& flight = this->flight(part);
  for (const auto& output : flight.outputs)
    if (output.defined() && output.requires_grad()) return;
  for (const auto& losses : flight.auxiliary)
    if (losses && models::train_anything(*losses)) return;
  let_go(flight);
  flights_.erase(part);
}

Result<at::Tensor> ModelStage::rows_for(MessageId id) {
  const PartKey part = source_part(id);
  Flight& flight = this->flight(part);
  auto rows = layers_.rows_of(id, flight.outputs);
  if (rows.ok() && --flight.unsent == 0) release(part);
  return rows;
}

Status ModelStage::run_backward(PartKey part) {
  Flight& flight = this->flight(part);
  std::vector<at::Tensor> roots, gradients;
  for (std::size_t i = 0; i < flight.outputs.size(); ++i) {
    const at::Tensor& output = flight.outputs[i];
    if (!output.defined() || !output.requires_grad()) continue;
    at::Tensor gradient =
        makes_losses(runs()[i])
            ? at::full(output.sizes(), 1.0 / static_cast<double>(iteration_->trained_tokens),
                       output.options())
            : layers_.output_gradient(i, part, output, flight.gradients);
    if (!gradient.defined()) continue;  // An inner run: its graph is part of the next run's.
    roots.push_back(output);
    gradients.push_back(std::move(gradient));
  }
  for (std::size_t i = 0; i < flight.auxiliary.size(); ++i)
    if (flight.auxiliary[i] && !flight.auxiliary[i]->empty())
      models::append_roots(*flight.auxiliary[i], segments_of_batch(runs()[i].range.module), roots,
                           gradients);
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
  if (viewer_ != nullptr) show_gradients(flight);
  flight.outputs.clear();
  flight.auxiliary.clear();
  flight.gradients.clear();
  flight.saved.reset();
  // Nobody asks for the gradient of these. Others wait for `gradient_for`.
  std::erase_if(flight.arrived,
                [&](const auto& entry) { return !iteration_->at(entry.first).has_backward; });
  // Else what weight gradients need is still there. A stage that does not train is never asked for
  // those.
  if (!flight.deferred || flight.deferred->empty()) let_go(flight);
  layers_.harvest();
  return Done{};
}

Status ModelStage::backward(PartKey part) { return run_backward(part); }

Status ModelStage::backward_input(PartKey part) {
  Flight& flight = this->flight(part);
  // Weight gradients that wait are added to the very parameters that a forward has saved.
  if (flight.saved)
    return Error{Errc::internal, "gradients of an offloaded part are not taken apart", {}, {}};
  flight.deferred = std::make_shared<kernels::DeferredGradients>();
  const kernels::DeferWeightGradients guard(flight.deferred);
  return run_backward(part);
}

Status ModelStage::backward_weight(PartKey part) {
  Flight& flight = this->flight(part);
  if (!flight.deferred)
    return Error{Errc::internal, "weight gradients asked for before input gradients", {}, {}};
  {
    const c10::NoGradGuard no_grad;
    flight.deferred->run();
  }
  flight.deferred.reset();
  let_go(flight);
  layers_.harvest();
  return Done{};
}

Result<Bytes> ModelStage::offload(PartKey part, Device& device) {
  Flight& flight = this->flight(part);
  if (!flight.saved)
    return Error{Errc::internal, "a part is to be offloaded before its forward", {}, {}};
  const Bytes moved = flight.saved->offload(device);
  hold(flight, -moved.count());
  return moved;
}

Result<Bytes> ModelStage::fetch(PartKey part, Device& device) {
  Flight& flight = this->flight(part);
  if (!flight.saved)
    return Error{Errc::internal, "a part is to be fetched that is not in host memory", {}, {}};
  const Bytes moved = flight.saved->fetch(device);
  hold(flight, moved.count());
  return moved;
}

Result<at::Tensor> ModelStage::gradient_for(MessageId id) {
  return StageLayers::take_gradient(flight(destination_part(id)).arrived, id);
}

}  // namespace troupe::engine
