#include "engine/plan_replica.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "kernels/deferred_gradients.hpp"

namespace troupe::engine {

PlanReplica::PlanReplica(const ParallelPlan& plan, PipelineId pipeline, WholeModel model)
    : plan_(plan), pipeline_(pipeline), model_(std::move(model)) {
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    for (const Holder& holder : plan.groups[g].holders)
      if (plan.at(holder.stage).pipeline == pipeline) add_state(GroupId{g}, holder);
}

void PlanReplica::begin(const std::vector<Action>& backward) {
  for (auto& [key, state] : states_) {
    state.held->zero();
    state.sum = at::zeros_like(state.held->gradients());
    state.turns.clear();
    state.waiting.clear();
    for (const Action& action : backward)
      if (action.stage == state.stage) state.turns.push_back(turn(action));
  }
  splits_weight_ = std::any_of(backward.begin(), backward.end(), [](const Action& action) {
    return action.kind == ActionKind::backward_weight;
  });
  losses_.clear();
}

Status PlanReplica::train(const IterationPlan& iteration, const SampleStore& store) {
  const auto& cut = iteration.microbatches[pipeline_.index()];
  crossings_.clear();
  for (std::size_t m = 0; m < cut.encoder.size(); ++m)
    for (std::size_t p = 0; p < cut.encoder[m].parts.size(); ++p)
      if (auto done = encode(iteration, {MicrobatchId{m}, PartId{p}}, store); !done.ok())
        return done;
  for (std::size_t m = 0; m < cut.llm.size(); ++m)
    for (std::size_t p = 0; p < cut.llm[m].parts.size(); ++p)
      if (auto done = train_llm(iteration, {MicrobatchId{m}, PartId{p}}, store); !done.ok())
        return done;
  for (std::size_t m = 0; m < cut.encoder.size(); ++m)
    for (std::size_t p = 0; p < cut.encoder[m].parts.size(); ++p)
      encode_backward({MicrobatchId{m}, PartId{p}});
  for (auto& [key, state] : states_) {
    if (!state.turns.empty() || !state.waiting.empty())
      return Error{Errc::internal,
                   "a gradient of '" + plan_.groups[key.first.index()].name +
                       "' was planned and not made, or made and not planned",
                   {},
                   {}};
    state.held->gradients().copy_(state.sum);
  }
  return Done{};
}

void PlanReplica::add_state(GroupId group, const Holder& holder) {
  auto held =
      std::make_unique<HolderState>(parameters_of(plan_, group, model_.layer(holder.layer)));
  states_[{group, holder.layer}] = {holder.stage, std::move(held), {}, {}, {}};
}

/// Takes what the last backward gave to the parameters of one side.
void PlanReplica::take(Side side, Turn made) {
  for (auto& [key, state] : states_) {
    if (side_of(plan_, state.stage) != side) continue;
    state.held->harvest();
    // A stage without rows of this part has no turn for it.
    if (std::find(state.turns.begin(), state.turns.end(), made) != state.turns.end())
      state.waiting[made] = state.held->gradients().clone();
    state.held->gradients().zero_();
    while (!state.turns.empty()) {
      const auto next = state.waiting.extract(state.turns.front());
      if (next.empty()) break;
      state.sum.add_(next.mapped());
      state.turns.pop_front();
    }
  }
}

/// Backward of what belongs to one part on one side, as its stages run it.
void PlanReplica::run_backward(Side side, PartKey part, const std::vector<at::Tensor>& roots,
                               const std::vector<at::Tensor>& gradients) {
  if (!splits_weight_) {
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
    return take(side, {part, false});
  }
  const auto deferred = std::make_shared<kernels::DeferredGradients>();
  {
    const kernels::DeferWeightGradients guard(deferred);
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
  }
  take(side, {part, false});
  const c10::NoGradGuard no_grad;
  deferred->run();
  take(side, {part, true});
}

void PlanReplica::encode_backward(PartKey part) {
  std::vector<at::Tensor> roots, gradients;
  for (const Crossing& crossing : crossings_) {
    if (crossing.part != part || !crossing.output.requires_grad()) continue;
    if (!crossing.leaf.grad().defined()) continue;
    roots.push_back(crossing.output);
    gradients.push_back(crossing.leaf.grad());
  }
  run_backward(Side::encoder, part, roots, gradients);
}

Status PlanReplica::encode(const IterationPlan& iteration, PartKey key, const SampleStore& store) {
  const auto& part = iteration.microbatches[pipeline_.index()]
                         .encoder[key.microbatch.index()]
                         .parts[key.part.index()]
                         .samples;
  for (std::size_t m = 0; m < plan_.model.modules.size(); ++m) {
    const ModuleId encoder{m};
    if (plan_.model.at(encoder).kind != ModuleKind::encoder) continue;
    auto batch = pack_media_shapes(encoder, iteration.samples, part);
    if (batch.segments.empty()) continue;
    auto media = pack_media(plan_.model, encoder, iteration.samples, part, store);
    if (!media.ok()) return std::move(media).error();
    batch.input = std::move(media).value();
    at::Tensor rows;
    for (ModuleId module = encoder; plan_.model.at(module).kind != ModuleKind::llm;
         module = plan_.model.at(module).next.front())
      for (auto& layer : model_.layers(module)) rows = layer->forward(rows, batch);
    Crossing crossing{key, encoder, rows, rows.detach(),
                      row_spans(plan_.model, encoder, RowKind::output, iteration.samples, part)};
    crossing.leaf.requires_grad_(rows.requires_grad());
    crossings_.push_back(std::move(crossing));
  }
  return Done{};
}

/// Rows of `encoder` for a sample: which crossing has them, and where.
auto PlanReplica::find_rows(ModuleId encoder, std::int32_t sample)
    -> std::pair<Crossing*, RowSpan> {
  for (Crossing& crossing : crossings_)
    if (crossing.encoder == encoder)
      for (const RowSpan& span : crossing.spans)
        if (span.sample == sample) return {&crossing, span};
  return {nullptr, {}};
}

Status PlanReplica::train_llm(const IterationPlan& iteration, PartKey key,
                              const SampleStore& store) {
  const auto& part = iteration.microbatches[pipeline_.index()]
                         .llm[key.microbatch.index()]
                         .parts[key.part.index()]
                         .samples;
  auto batch = pack_text_shapes(iteration.samples, part);
  auto text = pack_text(plan_.model, iteration.samples, part, store);
  if (!text.ok()) return std::move(text).error();
  batch.input = text.value().token_ids;
  batch.labels = text.value().labels;
  for (std::size_t m = 0; m < plan_.model.modules.size(); ++m) {
    const auto& lists = text.value().media_positions[m];
    for (std::size_t i = 0; i < lists.size(); ++i) {
      if (lists[i].empty()) continue;
      const auto [crossing, span] = find_rows(ModuleId{m}, part[i]);
      if (!crossing) return Error{Errc::internal, "no rows for a sample of the plan", {}, {}};
      batch.media.push_back(
          {at::tensor(lists[i], at::kLong), crossing->leaf.narrow(0, span.begin, span.rows)});
    }
  }
  at::Tensor rows;
  for (auto& layer : model_.layers(plan_.model.llm())) rows = layer->forward(rows, batch);
  record(iteration, key, part, rows);
  std::vector<at::Tensor> roots, gradients;
  if (rows.requires_grad()) {
    roots.push_back(rows);
    gradients.push_back(at::full(rows.sizes(), 1.0 / static_cast<double>(iteration.trained_tokens),
                                 rows.options().requires_grad(false)));
  }
  run_backward(Side::llm, key, roots, gradients);
  return Done{};
}

void PlanReplica::record(const IterationPlan& iteration, PartKey key,
                         const std::vector<std::int32_t>& part, const at::Tensor& losses) {
  PartLoss loss{pipeline_, key.microbatch, key.part, 0, {}};
  const at::Tensor values = losses.detach().to(at::kDouble).contiguous();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const double value = values.data_ptr<double>()[i];
    loss.sum += value;
    if (!std::isfinite(value))
      loss.nonfinite_samples.push_back(
          iteration.samples[static_cast<std::size_t>(part[static_cast<std::size_t>(i)])].id);
  }
  losses_.push_back(std::move(loss));
}

}  // namespace troupe::engine
