#include "engine/reference/plan_replica.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "engine/execution/layer_faults.hpp"
#include "engine/execution/loss_shape.hpp"
#include "engine/reference/layer_calls.hpp"
#include "kernels/deferred_gradients.hpp"
#include "runtime/plugins/user_calls.hpp"

namespace troupe::engine {

namespace {

/// Per replica of a pipeline: how many of its group stand before it.
std::map<ReplicaId, std::size_t> ordinals_of(const ParallelPlan& plan, PipelineId pipeline) {
  std::map<ReplicaId, std::size_t> ordinals;
  std::map<ModuleGroupId, std::size_t> counts;
  for (const ReplicaId replica : plan.at(pipeline).replicas)
    ordinals[replica] = counts[plan.at(replica).group]++;
  return ordinals;
}

/// Adds the rows of `encoder` for a sample, whole or piece by piece, and says how many there were.
/// `positions`: of all of them, in the order of its items.
std::int64_t add_rows(const PlanReplica::Crossings& crossings, ModuleId encoder,
                      std::int32_t sample, const SampleUnits& units,
                      std::span<const std::int64_t> positions,
                      std::vector<models::MediaRows>& media) {
  std::int64_t found = 0;
  for (const auto& crossing : crossings) {
    if (crossing.encoder != encoder) continue;
    for (const RowSpan& span : crossing.spans) {
      if (units.sample_of(span.sample) != sample) continue;
      const auto own = positions.subspan(static_cast<std::size_t>(units.rows_before(span.sample)),
                                         static_cast<std::size_t>(span.rows));
      media.push_back({at::tensor(at::IntArrayRef(own.data(), own.size()), at::kLong),
                       crossing.leaf.narrow(0, span.begin, span.rows)});
      found += span.rows;
    }
  }
  return found;
}

/// The samples of a part; of pieces that stand beside each other theirs once.
std::vector<std::string> ids_of(const IterationPlan& iteration, const Part& part) {
  std::vector<std::string> ids;
  for (const std::int32_t unit : part.samples)
    if (const std::string& id = iteration.sample(unit).id; ids.empty() || ids.back() != id)
      ids.push_back(id);
  return ids;
}

}  // namespace

std::size_t PlanReplica::models_needed(const ParallelPlan& plan, PipelineId pipeline) {
  std::size_t most = 0;
  for (const auto& [replica, ordinal] : ordinals_of(plan, pipeline))
    most = std::max(most, ordinal + 1);
  return most;
}

PlanReplica::PlanReplica(const ParallelPlan& plan, PipelineId pipeline,
                         std::vector<WholeModel> models)
    : plan_(plan),
      pipeline_(pipeline),
      models_(std::move(models)),
      ordinals_(ordinals_of(plan, pipeline)) {
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    for (const ParameterUse& holder : plan.groups[g].uses)
      if (plan.pipeline_of(holder.stage) == pipeline) add_state(GroupId{g}, holder);
}

template <class Work>
Status PlanReplica::for_each_part(const IterationPlan& iteration, bool llm, Work work) {
  for (const ReplicaId replica : plan_.at(pipeline_).replicas) {
    if (plan_.is_llm(replica) != llm) continue;
    const MicrobatchList& list = iteration.microbatches[replica.index()];
    for (std::size_t m = 0; m < list.size(); ++m)
      for (std::size_t p = 0; p < list[m].parts.size(); ++p) {
        work_ = work_words(ids_of(iteration, list[m].parts[p]), iteration.step);
        try {
          if (Status done = work(replica, PartKey{MicrobatchId{m}, PartId{p}}); !done.ok())
            return done;
        } catch (...) {
          return layer_fault(work_);
        }
      }
  }
  return Done{};
}

at::Tensor PlanReplica::run(ReplicaId replica, ModuleId module, at::Tensor rows,
                            const models::PackedBatch& batch) {
  return run_layers(plan_.model.at(module), model_of(replica).layers(module), std::move(rows),
                    batch, work_);
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
  auxiliary_.clear();
}

Status PlanReplica::encode(const IterationPlan& iteration, const SampleStore& store,
                           Crossings& crossings) {
  return for_each_part(iteration, false, [&](ReplicaId replica, PartKey part) {
    return encode_part(iteration, replica, part, store, crossings);
  });
}

Status PlanReplica::train_llm(const IterationPlan& iteration, const SampleStore& store,
                              Crossings& crossings) {
  return for_each_part(iteration, true, [&](ReplicaId replica, PartKey part) {
    return train_part(iteration, replica, part, store, crossings);
  });
}

Status PlanReplica::finish(const IterationPlan& iteration, const Crossings& crossings) {
  auto done = for_each_part(iteration, false, [&](ReplicaId replica, PartKey part) -> Status {
    encode_backward(iteration, replica, part, crossings);
    return Done{};
  });
  if (!done.ok()) return done;
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

void PlanReplica::add_state(GroupId group, const ParameterUse& holder) {
  auto& model = model_of(plan_.at(holder.stage).replica);
  auto held =
      std::make_unique<ParameterShard>(parameters_of(plan_, group, model.layer(holder.layer)));
  states_[{group, holder}] = {holder.stage, std::move(held), {}, {}, {}};
}

/// Takes what the last backward gave to the parameters of one replica.
void PlanReplica::take(ReplicaId replica, Turn made) {
  for (auto& [key, state] : states_) {
    if (plan_.at(state.stage).replica != replica) continue;
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

/// Backward of what belongs to one part of one replica, as its stages run it.
void PlanReplica::run_backward(ReplicaId replica, PartKey part,
                               const std::vector<at::Tensor>& roots,
                               const std::vector<at::Tensor>& gradients) {
  const plugins::CallingUser calling(backward_words(work_));
  if (!splits_weight_) {
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
    return take(replica, {part, false});
  }
  const auto deferred = std::make_shared<kernels::DeferredGradients>();
  {
    const kernels::DeferWeightGradients guard(deferred);
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
  }
  take(replica, {part, false});
  const c10::NoGradGuard no_grad;
  deferred->run();
  take(replica, {part, true});
}

void PlanReplica::encode_backward(const IterationPlan& iteration, ReplicaId replica, PartKey part,
                                  const Crossings& crossings) {
  std::vector<at::Tensor> roots, gradients;
  for (const Crossing& crossing : crossings) {
    if (crossing.replica != replica || crossing.part != part) continue;
    for (const auto& [module, losses] : crossing.auxiliary)
      models::append_roots(*losses, segment_count(plan_.model, module, iteration.samples), roots,
                           gradients);
    if (!crossing.output.requires_grad()) continue;
    if (!crossing.leaf.grad().defined()) continue;
    roots.push_back(crossing.output);
    gradients.push_back(crossing.leaf.grad());
  }
  run_backward(replica, part, roots, gradients);
}

Status PlanReplica::encode_part(const IterationPlan& iteration, ReplicaId replica, PartKey key,
                                const SampleStore& store, Crossings& crossings) {
  const auto& part = iteration.microbatches[replica.index()][key.microbatch.index()]
                         .parts[key.part.index()]
                         .samples;
  const SampleUnits units(iteration.samples, iteration.pieces);
  for (const ModuleId encoder : plan_.module_groups[plan_.at(replica).group.index()].modules) {
    if (plan_.model.at(encoder).kind == ModuleKind::teacher)
      if (auto taught = teach_part(iteration, replica, key, encoder, store, crossings);
          !taught.ok())
        return taught;
    if (plan_.model.at(encoder).kind != ModuleKind::encoder) continue;
    auto batch = pack_media_shapes(encoder, units.shapes(), part);
    if (batch.segments.empty()) continue;
    auto media = pack_media(plan_.model, encoder, units, part, store);
    if (!media.ok()) return std::move(media).error();
    batch.input = std::move(media).value();
    at::Tensor rows;
    std::map<ModuleId, std::shared_ptr<models::AuxiliaryLosses>> auxiliary;
    for (ModuleId module = encoder; plan_.model.at(module).kind != ModuleKind::llm;
         module = plan_.model.at(module).next.front()) {
      batch.losses = auxiliary[module] = std::make_shared<models::AuxiliaryLosses>();
      rows = run(replica, module, std::move(rows), batch);
      record_auxiliary(iteration, module, key, *batch.losses);
    }
    Crossing crossing{
        replica,       key,
        encoder,       rows,
        rows.detach(), row_spans(plan_.model, encoder, RowKind::output, units.shapes(), part)};
    crossing.leaf.requires_grad_(rows.requires_grad());
    crossing.auxiliary = std::move(auxiliary);
    crossings.push_back(std::move(crossing));
  }
  return Done{};
}

Status PlanReplica::train_part(const IterationPlan& iteration, ReplicaId replica, PartKey key,
                               const SampleStore& store, Crossings& crossings) {
  const auto& part = iteration.microbatches[replica.index()][key.microbatch.index()]
                         .parts[key.part.index()]
                         .samples;
  auto packed = pack_text_shapes(plan_.model, iteration.samples, part);
  if (!packed.ok()) return std::move(packed).error();
  models::PackedBatch& batch = packed.value();
  auto text = pack_text(plan_.model, iteration.samples, part, store);
  if (!text.ok()) return std::move(text).error();
  batch.input = text.value().token_ids;
  batch.labels = text.value().labels;
  const SampleUnits units(iteration.samples, iteration.pieces);
  for (std::size_t m = 0; m < plan_.model.modules.size(); ++m) {
    const auto& lists = text.value().media_positions[m];
    for (std::size_t i = 0; i < lists.size(); ++i)
      if (!lists[i].empty() && add_rows(crossings, ModuleId{m}, part[i], units, lists[i],
                                        batch.media) != std::ssize(lists[i]))
        return Error{Errc::internal, "no rows for a sample of the plan", {}, {}};
  }
  if (auto taught = attach_taught(crossings, part, text.value(), batch); !taught.ok())
    return taught;
  batch.losses = std::make_shared<models::AuxiliaryLosses>();
  const at::Tensor rows = run(replica, plan_.model.llm(), {}, batch);
  if (auto fine =
          check_losses(plan_.model.at(plan_.model.llm()), rows, part.size(), " for " + work_);
      !fine.ok())
    return fine;
  record_auxiliary(iteration, plan_.model.llm(), key, *batch.losses);
  record(iteration, replica, key, part, rows);
  std::vector<at::Tensor> roots, gradients;
  if (rows.requires_grad()) {
    roots.push_back(rows);
    gradients.push_back(at::full(rows.sizes(), 1.0 / static_cast<double>(iteration.trained_tokens),
                                 rows.options().requires_grad(false)));
  }
  models::append_roots(*batch.losses,
                       segment_count(plan_.model, plan_.model.llm(), iteration.samples), roots,
                       gradients);
  run_backward(replica, key, roots, gradients);
  return Done{};
}

void PlanReplica::record_auxiliary(const IterationPlan& iteration, ModuleId module, PartKey part,
                                   const models::AuxiliaryLosses& losses) {
  const auto segments = segment_count(plan_.model, module, iteration.samples);
  for (const models::AuxiliaryLoss& loss : losses)
    auxiliary_.push_back(
        {plan_.model.at(module).name + "." + loss.name, StageId{}, part.microbatch, part.part,
         models::contribution(loss, models::sum_of(loss).item<double>(), segments)});
}

void PlanReplica::record(const IterationPlan& iteration, ReplicaId replica, PartKey key,
                         const std::vector<std::int32_t>& part, const at::Tensor& losses) {
  PartLoss loss{replica, key.microbatch, key.part, 0, {}};
  const at::Tensor values = losses.detach().to(at::kCPU, at::kDouble).contiguous();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const double value = values.data_ptr<double>()[i];
    loss.sum += value;
    if (!std::isfinite(value))
      loss.nonfinite_samples.push_back(iteration.sample(part[static_cast<std::size_t>(i)]).id);
  }
  losses_.push_back(std::move(loss));
}

}  // namespace troupe::engine
