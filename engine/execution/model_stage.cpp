#include "engine/execution/model_stage.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/state/memory_count.hpp"

namespace troupe::engine {

ModelStage::ModelStage(const ParallelPlan& plan, StageId id, models::LayerOptions options)
    : plan_(plan), id_(id), options_(std::move(options)) {}

Result<std::unique_ptr<ModelStage>> ModelStage::create(const ParallelPlan& plan, StageId id,
                                                       const std::vector<ModuleConfig>& modules,
                                                       const models::LayerOptions& options,
                                                       const StateStore& store) {
  std::unique_ptr<ModelStage> stage(new ModelStage(plan, id, options));
  std::map<LayerId, models::Layer*> built;
  for (const LayerRun& range : plan.at(id).runs) {
    const ModuleSpec& spec = plan.model.at(range.module);
    const auto config =
        std::find_if(modules.begin(), modules.end(),
                     [&](const ModuleConfig& module) { return module.name == spec.name; });
    if (config == modules.end())
      return Error{Errc::internal, "no configuration for module '" + spec.name + "'", {}, {}};
    Run run{range, {}};
    auto layer_options = options;
    layer_options.only.emplace();
    for (std::int32_t index = range.layers.begin; index < range.layers.end; ++index) {
      auto layer = models::make_layer(*config, modules, index, layer_options);
      if (!layer.ok()) return std::move(layer).error();
      if (auto bound = store.bind(*layer.value()); !bound.ok()) return std::move(bound).error();
      built[{range.module, index}] = layer.value().get();
      run.layers.push_back(std::move(layer).value());
    }
    stage->runs_.push_back(std::move(run));
  }
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const ParameterGroup& group = plan.groups[g];
    for (const ParameterUse& holder : group.uses) {
      if (holder.stage != id) continue;
      auto parameters = parameters_of(plan, GroupId{g}, *built.at(holder.layer));
      auto optimizers = store.optimizers(parameters);
      auto state = std::make_unique<ParameterShard>(std::move(parameters), std::move(optimizers));
      if (state->elements() != group.elements)
        return Error{Errc::internal,
                     "group '" + group.name + "' has " + std::to_string(state->elements()) +
                         " elements in its layer, " + std::to_string(group.elements) +
                         " in the plan",
                     {},
                     {}};
      stage->states_[{GroupId{g}, holder.layer}] = std::move(state);
    }
  }
  return stage;
}

ParameterShard& ModelStage::state(GroupId group, LayerId layer) {
  return *states_.at({group, layer});
}

std::vector<models::Parameter*> ModelStage::parameters() {
  std::vector<models::Parameter*> parameters;
  for (auto& run : runs_)
    for (auto& layer : run.layers)
      for (auto& parameter : layer->parameters()) parameters.push_back(&parameter);
  return parameters;
}

Status ModelStage::begin(const IterationPlan& plan, const data::DecodedSamples& samples) {
  abandon();
  iteration_ = &plan;
  units_.emplace(plan.samples, plan.pieces);
  samples_ = &samples;
  for (auto& [key, state] : states_) state->zero();
  for (std::size_t i = 0; i < plan.messages.size(); ++i) {
    const MessageId id = plan.id_of(i);
    if (plan.messages[i].source.stage == id_) outgoing_[source_part(id)].push_back(id);
    if (plan.messages[i].destination.stage == id_) incoming_[destination_part(id)].push_back(id);
  }
  for (const auto& list : plan.actions)
    for (const Action& action : list)
      if (action.kind == ActionKind::offload && action.stage == id_)
        offloaded_.insert({action.microbatch, action.part});
  return Done{};
}

void ModelStage::abandon() {
  flights_.clear();
  losses_.clear();
  auxiliary_.clear();
  incoming_.clear();
  outgoing_.clear();
  offloaded_.clear();
  activations_ = Bytes{};
}

const std::vector<std::int32_t>& ModelStage::samples_of(PartKey part) const {
  return troupe::samples_of(plan_, *iteration_, id_, part.microbatch, part.part);
}

bool ModelStage::ends_module(const Run& run) const {
  return run.range.layers.end ==
         static_cast<std::int32_t>(plan_.model.at(run.range.module).layers.size());
}

std::vector<RowSpan> ModelStage::output_spans(const Run& run, PartKey part) const {
  return row_spans(plan_.model, run.range.module,
                   ends_module(run) ? RowKind::output : RowKind::hidden, units_->shapes(),
                   samples_of(part));
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
  Run& run = runs_[run_index];
  auto batch = pack(run, part, flight);
  if (!batch.ok()) return std::move(batch).error();
  if (batch.value().segments.empty()) return at::Tensor{};
  auto rows = input_rows(run_index, part, flight);
  if (!rows.ok()) return rows;
  at::Tensor value = std::move(rows).value();
  batch.value().losses = std::make_shared<models::AuxiliaryLosses>();
  for (auto& layer : run.layers) value = layer->forward(value, batch.value());
  flight.auxiliary[run_index] = batch.value().losses;
  for (const models::AuxiliaryLoss& loss : *batch.value().losses)
    auxiliary_.emplace_back(part, run.range.module,
                            models::AuxiliaryLoss{loss.name, loss.weight, models::sum_of(loss)});
  return value;
}

std::int64_t ModelStage::segments_of_batch(ModuleId module) const {
  return segment_count(plan_.model, module, iteration_->samples);
}

Status ModelStage::forward(PartKey part) {
  Flight& flight = this->flight(part);
  flight.outputs.assign(runs_.size(), at::Tensor{});
  flight.auxiliary.assign(runs_.size(), nullptr);
  const CountMemory count;
  std::optional<SavedTensors::Collect> collect;
  if (offloaded_.contains(part)) collect.emplace(flight.saved.emplace());
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    auto output = run_layers(i, part, flight);
    if (!output.ok()) return std::move(output).error();
    flight.outputs[i] = std::move(output).value();
    if (flight.outputs[i].defined() && runs_[i].range.module == plan_.model.llm() &&
        ends_module(runs_[i]))
      losses_.emplace_back(part, flight.outputs[i].detach());
  }
  collect.reset();
  hold(flight, count.bytes());
  if (viewer_ != nullptr) show_outputs(flight);
  flight.unsent = outgoing_[part].size();
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
  const Message& message = iteration_->at(id);
  const PartKey part = source_part(id);
  Flight& flight = this->flight(part);
  for (std::size_t i = 0; i < flight.outputs.size(); ++i) {
    const Run& run = runs_[i];
    if (run.range.module != message.module || ends_module(run) != message.boundary) continue;
    if (!flight.outputs[i].defined()) break;
    const at::Tensor output = flight.outputs[i].detach();
    if (--flight.unsent == 0) release(part);
    const auto spans = output_spans(run, part);
    if (covers(spans, message.samples)) return output.contiguous();
    std::vector<at::Tensor> slices;
    for (const std::int32_t sample : message.samples)
      if (const RowSpan* span = find_span(spans, sample))
        slices.push_back(output.narrow(0, span->begin, span->rows));
    return at::cat(slices);
  }
  return Error{Errc::internal, "send of rows that were not computed", {}, {}};
}

at::Tensor ModelStage::assemble_gradient(std::size_t run_index, PartKey part,
                                         const Flight& flight) const {
  const Run& run = runs_[run_index];
  const at::Tensor& output = flight.outputs[run_index];
  const auto spans = output_spans(run, part);
  at::Tensor gradient;
  for (const auto& [id, rows] : flight.gradients) {
    const Message& message = iteration_->at(id);
    if (message.module != run.range.module || ends_module(run) != message.boundary) continue;
    if (covers(spans, message.samples)) return rows;
    if (!gradient.defined()) gradient = at::zeros(output.sizes(), output.options());
    std::int64_t begin = 0;
    for (const std::int32_t sample : message.samples) {
      const RowSpan* span = find_span(spans, sample);
      gradient.narrow(0, span->begin, span->rows).copy_(rows.narrow(0, begin, span->rows));
      begin += span->rows;
    }
  }
  return gradient;
}

Status ModelStage::run_backward(PartKey part) {
  Flight& flight = this->flight(part);
  std::vector<at::Tensor> roots, gradients;
  for (std::size_t i = 0; i < flight.outputs.size(); ++i) {
    const at::Tensor& output = flight.outputs[i];
    if (!output.defined() || !output.requires_grad()) continue;
    const bool is_loss = runs_[i].range.module == plan_.model.llm() && ends_module(runs_[i]);
    at::Tensor gradient =
        is_loss ? at::full(output.sizes(), 1.0 / static_cast<double>(iteration_->trained_tokens),
                           output.options())
                : assemble_gradient(i, part, flight);
    if (!gradient.defined()) continue;  // An inner run: its graph is part of the next run's.
    roots.push_back(output);
    gradients.push_back(std::move(gradient));
  }
  for (std::size_t i = 0; i < flight.auxiliary.size(); ++i)
    if (flight.auxiliary[i] && !flight.auxiliary[i]->empty())
      models::append_roots(*flight.auxiliary[i], segments_of_batch(runs_[i].range.module), roots,
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
  for (auto& [key, state] : states_) state->harvest();
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
  for (auto& [key, state] : states_) state->harvest();
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
  Flight& flight = this->flight(destination_part(id));
  const auto arrived = flight.arrived.find(id);
  if (arrived == flight.arrived.end() || !arrived->second.grad().defined())
    return Error{Errc::internal, "send of a gradient that was not computed", {}, {}};
  at::Tensor gradient = arrived->second.grad().contiguous();
  flight.arrived.erase(arrived);
  return gradient;
}

}  // namespace troupe::engine
