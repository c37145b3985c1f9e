#include "engine/execution/stage_layers.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/execution/fault_words.hpp"
#include "engine/execution/loss_shape.hpp"
#include "engine/execution/parameter_shard.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "engine/state/state_store.hpp"
#include "models/factory.hpp"

namespace troupe::engine {

namespace {

/// What there is of a part in these lists.
const std::vector<MessageId>& found(const std::map<PartKey, std::vector<MessageId>>& lists,
                                    PartKey part) {
  static const std::vector<MessageId> none;
  const auto list = lists.find(part);
  return list == lists.end() ? none : list->second;
}

/// As `part_words`, of units.
std::string words_of(const IterationPlan& iteration, const std::vector<std::int32_t>& units,
                     PartKey part) {
  std::vector<std::string> samples;
  for (const std::int32_t unit : units) samples.push_back(iteration.sample(unit).id);
  return part_words(samples, part.microbatch);
}

bool leads_to(const ModuleSpec& module, ModuleId next) {
  return std::ranges::find(module.next, next) != module.next.end();
}

/// One run, its values those of the store.
Result<StageLayers::Run> made_run(const StageRequest& request, const LayerRun& range) {
  const ModuleSpec& spec = request.plan.model.at(range.module);
  const auto config = std::ranges::find(request.modules, spec.name, &ModuleConfig::name);
  if (config == request.modules.end())
    return Error{Errc::internal, "no configuration for module '" + spec.name + "'", {}, {}};
  StageLayers::Run run{
      range, range.layers.end == static_cast<std::int32_t>(spec.layers.size()), {}};
  auto options = request.options;
  options.only.emplace();
  for (std::int32_t index = range.layers.begin; index < range.layers.end; ++index) {
    auto layer = models::make_layer(*config, request.modules, index, options);
    if (!layer.ok()) return std::move(layer).error();
    if (auto bound = request.store.bind(*layer.value()); !bound.ok())
      return std::move(bound).error();
    run.layers.push_back(std::move(layer).value());
  }
  return run;
}

Result<std::unique_ptr<ParameterShard>> made_state(const StageRequest& request, GroupId id,
                                                   models::Layer& layer) {
  const ParameterGroup& group = request.plan.groups[id.index()];
  auto parameters = parameters_of(request.plan, id, layer);
  auto optimizers = request.store.optimizers(parameters);
  auto state = std::make_unique<ParameterShard>(std::move(parameters), std::move(optimizers));
  if (state->elements() != group.elements)
    return Error{Errc::internal,
                 "group '" + group.name + "' has " + std::to_string(state->elements()) +
                     " elements in its layer, " + std::to_string(group.elements) + " in the plan",
                 {},
                 {}};
  return state;
}

}  // namespace

StageLayers::StageLayers(const ParallelPlan& plan, StageId id) : plan_(&plan), id_(id) {}
StageLayers::StageLayers(StageLayers&& other) noexcept = default;
StageLayers& StageLayers::operator=(StageLayers&& other) noexcept = default;
StageLayers::~StageLayers() = default;

Result<StageLayers> StageLayers::create(const StageRequest& request) {
  StageLayers made(request.plan, request.id);
  std::map<LayerId, models::Layer*> built;
  for (const LayerRun& range : request.plan.at(request.id).runs) {
    auto run = made_run(request, range);
    if (!run.ok()) return std::move(run).error();
    std::int32_t index = range.layers.begin;
    for (const auto& layer : run.value().layers) built[{range.module, index++}] = layer.get();
    made.runs_.push_back(std::move(run).value());
  }
  for (std::size_t g = 0; g < request.plan.groups.size(); ++g)
    for (const ParameterUse& use : request.plan.groups[g].uses) {
      if (use.stage != request.id) continue;
      auto state = made_state(request, GroupId{g}, *built.at(use.layer));
      if (!state.ok()) return std::move(state).error();
      made.states_[{GroupId{g}, use.layer}] = std::move(state).value();
    }
  return made;
}

void StageLayers::begin(const IterationPlan& iteration) {
  iteration_ = &iteration;
  units_.emplace(iteration.samples, iteration.pieces);
  traffic_ = traffic_of(*plan_, iteration, id_);
  for (auto& [key, state] : states_) state->zero();
}

const std::vector<std::int32_t>& StageLayers::units_of(PartKey part) const {
  return samples_of(*plan_, *iteration_, id_, part.microbatch, part.part);
}

const std::vector<MessageId>& StageLayers::incoming(PartKey part) const {
  return found(traffic_.incoming, part);
}

const std::vector<MessageId>& StageLayers::outgoing(PartKey part) const {
  return found(traffic_.outgoing, part);
}

Result<models::PackedBatch> StageLayers::encoder_batch(std::size_t run, PartKey part,
                                                       const data::DecodedSamples& samples) const {
  auto packed = pack_encoder(plan_->model, runs_[run].range, *units_, units_of(part), samples);
  if (packed.ok()) packed.value().needs_losses = true;
  return packed;
}

/// The run of this stage whose output a run begins from: the layers before its own, or the module
/// before its own.
std::optional<std::size_t> StageLayers::before(std::size_t run) const {
  const Run& own = runs_[run];
  for (std::size_t i = 0; i < run; ++i) {
    const Run& other = runs_[i];
    const bool same =
        other.range.module == own.range.module && other.range.layers.end == own.range.layers.begin;
    const bool feeds = own.range.layers.begin == 0 && other.ends_module &&
                       leads_to(plan_->model.at(other.range.module), own.range.module);
    if (same || feeds) return i;
  }
  return std::nullopt;
}

bool StageLayers::enters(const Message& message, const Run& run) const {
  if (run.range.layers.begin > 0) return !message.boundary && message.module == run.range.module;
  return message.boundary && leads_to(plan_->model.at(message.module), run.range.module);
}

Result<at::Tensor> StageLayers::input_rows(std::size_t run, PartKey part,
                                           const std::vector<at::Tensor>& outputs,
                                           const std::map<MessageId, at::Tensor>& arrived) const {
  const Run& own = runs_[run];
  const ModuleSpec& module = plan_->model.at(own.range.module);
  if (own.range.layers.begin == 0 && module.kind != ModuleKind::projector) return at::Tensor{};
  if (const auto from = before(run)) return outputs[*from];
  for (const MessageId id : incoming(part)) {
    if (!enters(iteration_->at(id), own)) continue;
    const auto rows = arrived.find(id);
    if (rows == arrived.end())
      return Error{
          Errc::internal, "forward of '" + module.name + "' before its rows arrived", {}, {}};
    return rows->second;
  }
  return at::Tensor{};
}

/// The run whose rows a message takes that begins here; one behind the last: there is none.
std::size_t StageLayers::maker_of(const Message& message) const {
  const auto made = std::ranges::find_if(runs_, [&](const Run& run) {
    return run.range.module == message.module && run.ends_module == message.boundary;
  });
  return static_cast<std::size_t>(made - runs_.begin());
}

/// Rows of each unit of a part in the output of a run.
std::vector<RowSpan> StageLayers::output_spans(std::size_t run, PartKey part) const {
  return row_spans(plan_->model, runs_[run].range.module,
                   runs_[run].ends_module ? RowKind::output : RowKind::hidden, units_->shapes(),
                   units_of(part));
}

Status StageLayers::check_output(std::size_t run, PartKey part, const at::Tensor& output) const {
  const LayerRun& range = runs_[run].range;
  const ModuleSpec& module = plan_->model.at(range.module);
  const std::vector<std::int32_t>& units = units_of(part);
  if (module.kind == ModuleKind::llm && runs_[run].ends_module)
    return check_losses(module, output, units.size(), words_of(*iteration_, units, part));
  const std::int64_t rows = row_count(output_spans(run, part));
  if (output.dim() == 2 && output.size(0) == rows) return Done{};
  return Error{Errc::internal,
               module.name + " layers " + std::to_string(range.layers.begin) + " to " +
                   std::to_string(range.layers.end - 1) + " make rows of the shape " +
                   shape_text(output) + words_of(*iteration_, units, part) + ", which have " +
                   std::to_string(rows) + " rows there",
               {},
               "correct the family, or what it says of its media, so that layers make the rows "
               "that it says"};
}

Result<at::Tensor> StageLayers::rows_of(MessageId id,
                                        const std::vector<at::Tensor>& outputs) const {
  const Message& message = iteration_->at(id);
  const std::size_t run = maker_of(message);
  if (run >= outputs.size() || !outputs[run].defined())
    return Error{Errc::internal, "send of rows that were not computed", {}, {}};
  const PartKey part = part_of(message.source);
  if (auto fine = check_output(run, part, outputs[run]); !fine.ok()) return fine.error();
  return take_rows(outputs[run].detach(), output_spans(run, part), message.samples);
}

at::Tensor StageLayers::output_gradient(std::size_t run, PartKey part, const at::Tensor& output,
                                        const std::map<MessageId, at::Tensor>& gradients) const {
  const auto spans = output_spans(run, part);
  at::Tensor gradient;
  for (const auto& [id, rows] : gradients) {
    const Message& message = iteration_->at(id);
    if (part_of(message.source) != part || maker_of(message) != run) continue;
    if (covers(spans, message.samples)) return rows;
    if (!gradient.defined()) gradient = at::zeros(output.sizes(), output.options());
    put_rows(gradient, spans, message.samples, rows);
  }
  return gradient;
}

Result<at::Tensor> StageLayers::take(std::map<MessageId, at::Tensor>& kept, MessageId message) {
  const auto found = kept.find(message);
  if (found == kept.end())
    return Error{Errc::internal, "send of rows that were not computed", {}, {}};
  at::Tensor taken = std::move(found->second);
  kept.erase(found);
  return taken;
}

Result<at::Tensor> StageLayers::take_gradient(std::map<MessageId, at::Tensor>& arrived,
                                              MessageId message) {
  const auto found = arrived.find(message);
  if (found == arrived.end() || !found->second.grad().defined())
    return Error{Errc::internal, "send of a gradient that was not computed", {}, {}};
  at::Tensor gradient = found->second.grad().contiguous();
  arrived.erase(found);
  return gradient;
}

void StageLayers::harvest() {
  for (auto& [key, state] : states_) state->harvest();
}

std::vector<models::Parameter*> StageLayers::parameters() {
  std::vector<models::Parameter*> parameters;
  for (const Run& run : runs_)
    for (const auto& layer : run.layers)
      for (auto& parameter : layer->parameters()) parameters.push_back(&parameter);
  return parameters;
}

GroupState& StageLayers::state(GroupId group, LayerId layer) { return *states_.at({group, layer}); }

}  // namespace troupe::engine
