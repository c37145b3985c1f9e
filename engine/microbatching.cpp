#include "engine/microbatching.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>

#include "balancer/baselines.hpp"
#include "engine/memory_bounds.hpp"
#include "engine/simulated_trace.hpp"
#include "scheduler/module_pipeline.hpp"
#include "scheduler/plan_iteration.hpp"
#include "scheduler/redistribution.hpp"
#include "scheduler/schedules.hpp"
#include "scheduler/simulate_plan.hpp"

namespace troupe::engine {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

constexpr double kImpossible = std::numeric_limits<double>::infinity();
constexpr std::size_t kTimelineActionsMax = 50'000;  // Nobody looks at more of one step.

/// Group of each sample.
std::vector<std::int32_t> places(const balancer::SampleGroups& groups, std::size_t count) {
  std::vector<std::int32_t> of(count, 0);
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const auto sample : groups[g]) of[at(sample)] = static_cast<std::int32_t>(g);
  return of;
}

/// Rows that encoders hand to the llm for a sample.
TokenCount boundary_rows(const SampleShape& sample) {
  TokenCount rows = 0;
  for (const auto& media : sample.media) rows += sample.output_rows(media.module);
  return rows;
}

/// No row may wait longer than one microbatch for its llm microbatch.
bool waits_too_long(const balancer::MicrobatchPlan& plan, std::size_t count) {
  const auto encoder = places(plan.encoder, count), llm = places(plan.llm, count);
  for (std::size_t s = 0; s < count; ++s)
    if (llm[s] > encoder[s] + 1) return true;
  return false;
}

double largest_over_mean(const balancer::Spread& spread) {
  return spread.mean_ms > 0 ? spread.max_ms / spread.mean_ms : 1;
}

double imbalance_of(std::span<const balancer::Workload> workloads,
                    const balancer::MicrobatchPlan& plan) {
  const auto encoder = balancer::group_loads(workloads, plan.encoder);
  const auto llm = balancer::group_loads(workloads, plan.llm);
  return std::max(largest_over_mean(balancer::encoder_spread(encoder)),
                  largest_over_mean(balancer::llm_spread(llm)));
}

std::vector<balancer::Workload> pick(const std::vector<balancer::Workload>& all,
                                     const std::vector<std::int32_t>& samples) {
  std::vector<balancer::Workload> picked;
  for (const auto sample : samples) picked.push_back(all[at(sample)]);
  return picked;
}

/// What a measurement is filed under: a stage and the rows of a part in its modules.
balancer::WorkShape shape_of(const ParallelPlan& plan, const scheduler::RowFlow& flow,
                             StageId stage, const std::vector<std::int32_t>& part) {
  TokenCount rows = 0;
  for (const LayerRun& run : plan.at(stage).runs)
    for (const auto sample : part) rows += flow.hidden(run.module, sample);
  return {stage.value, rows};
}

std::optional<scheduler::TaskKind> task_kind(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward: return scheduler::TaskKind::forward;
    case ActionKind::backward: return scheduler::TaskKind::backward;
    case ActionKind::backward_input: return scheduler::TaskKind::backward_input;
    case ActionKind::backward_weight: return scheduler::TaskKind::backward_weight;
    default: return std::nullopt;
  }
}

bool encoder_side_trains(const ModelGraph& model) {
  return std::any_of(model.modules.begin(), model.modules.end(), [](const ModuleSpec& module) {
    return module.kind != ModuleKind::llm && !module.freeze;
  });
}

}  // namespace

/// What each sample weighs, and the functions that cost its parts.
struct Microbatching::Work {
  std::vector<balancer::Workload> workloads;
  scheduler::SimulationCosts costs;  ///< Empty functions where no costs are known.
};

Microbatching::Microbatching(const ParallelPlan& plan, MicrobatchingOptions options,
                             std::shared_ptr<const PlanningCosts> costs)
    : plan_(plan),
      options_(std::move(options)),
      costs_(std::move(costs)),
      splits_parts_(scheduler::runs_parts_apart(options_.schedule) &&
                    encoder_side_trains(plan.model)) {
  if (options_.adaptive_correction && costs_) correction_.emplace();
}

Result<Microbatching::Work> Microbatching::work_of(const std::vector<SampleShape>& samples) const {
  Work work;
  if (!costs_) {
    for (const auto& sample : samples)
      work.workloads.push_back(
          {static_cast<double>(boundary_rows(sample)), static_cast<double>(sample.llm_tokens)});
    return work;
  }
  auto weights = scheduler::sample_workloads(costs_->model, samples, costs_->options.parallelisms);
  if (!weights.ok()) return std::move(weights).error();
  for (const auto& weight : weights.value())
    work.workloads.push_back({weight.encoder_total_ms, weight.llm_total_ms});
  auto costs = scheduler::predicted_costs(plan_, costs_->model, samples, costs_->options);
  if (!costs.ok()) return std::move(costs).error();
  work.costs = std::move(costs).value();
  if (correction_)
    work.costs.task_ms = [this, task_ms = std::move(work.costs.task_ms),
                          flow = std::make_shared<const scheduler::RowFlow>(plan_.model, samples)](
                             StageId stage, const std::vector<std::int32_t>& part,
                             scheduler::TaskKind kind) {
      return correction_->corrected_ms(shape_of(plan_, *flow, stage, part),
                                       task_ms(stage, part, kind));
    };
  return work;
}

/// Indices of `samples` in place of places in it; one part per llm microbatch that it feeds.
PipelineMicrobatches Microbatching::parts_of(const balancer::MicrobatchPlan& plan,
                                             const std::vector<std::int32_t>& samples,
                                             const std::vector<SampleShape>& shapes) const {
  PipelineMicrobatches sides;
  const auto llm = places(plan.llm, samples.size());
  for (const auto& group : plan.llm) {
    Part part;
    for (const auto place : group) part.samples.push_back(samples[at(place)]);
    if (!part.samples.empty()) sides.llm.push_back({{std::move(part)}});
  }
  for (const auto& group : plan.encoder) {
    std::int32_t first = std::numeric_limits<std::int32_t>::max();
    for (const auto place : group)
      if (boundary_rows(shapes[at(samples[at(place)])]) > 0)
        first = std::min(first, llm[at(place)]);
    std::map<std::int32_t, Part> parts;
    for (const auto place : group) {
      const auto sample = samples[at(place)];
      const bool own = splits_parts_ && boundary_rows(shapes[at(sample)]) > 0;
      parts[own ? llm[at(place)] : first].samples.push_back(sample);
    }
    Microbatch microbatch;
    for (auto& [target, part] : parts) microbatch.parts.push_back(std::move(part));
    if (!microbatch.parts.empty()) sides.encoder.push_back(std::move(microbatch));
  }
  return sides;
}

std::vector<std::int32_t> Microbatching::in_flight_bounds() const {
  if (options_.max_in_flight == 0) return {};
  return std::vector<std::int32_t>(plan_.stages.size(), options_.max_in_flight);
}

Result<IterationPlan> Microbatching::order(const DealtBatch& batch, const Work& work,
                                           std::vector<PipelineMicrobatches> microbatches) const {
  scheduler::IterationInput input;
  input.step = batch.step;
  input.epoch_number = batch.epoch_number;
  input.samples = batch.samples;
  input.microbatches = std::move(microbatches);
  input.schedule = options_.schedule;
  input.max_in_flight = in_flight_bounds();
  if (input.max_in_flight.empty() && bounds_memory())
    input.max_in_flight =
        memory_bounds(plan_, work.costs, costs_->device_memory, input.microbatches);
  if (work.costs.task_ms) {
    input.task_cost = work.costs.task_ms;
    input.message_cost = scheduler::message_costs(plan_, work.costs);
  }
  return scheduler::plan_iteration(plan_, std::move(input));
}

/// The samples of one pipeline, numbered anew, as task graphs of the many plans that `auto` costs.
class Microbatching::Alone {
 public:
  Alone(const Microbatching& owner, const DealtBatch& batch, const Work& work, std::size_t pipeline)
      : owner_(owner),
        work_(work),
        pipeline_(pipeline),
        own_(batch.pipelines[pipeline]),
        shapes_(shapes_of(batch, own_)),
        flow_(owner.plan_.model, shapes_),
        message_ms_(scheduler::message_costs(owner.plan_, work.costs)) {
    for (std::size_t s = 0; s < own_.size(); ++s) numbers_.push_back(static_cast<std::int32_t>(s));
  }

  scheduler::TaskGraph graph(const balancer::MicrobatchPlan& plan) const {
    const ParallelPlan& layout = owner_.plan_;
    std::vector<PipelineMicrobatches> microbatches(layout.pipelines.size());
    microbatches[pipeline_] = owner_.parts_of(plan, numbers_, shapes_);
    const auto messages = scheduler::plan_messages(layout, flow_, microbatches, shapes_.size());
    const auto task_ms = [this](StageId stage, const std::vector<std::int32_t>& part,
                                scheduler::TaskKind kind) {
      std::vector<std::int32_t> samples;
      for (const auto place : part) samples.push_back(own_[at(place)]);
      return work_.costs.task_ms(stage, samples, kind);
    };
    const bool split = scheduler::splits_weight_gradient(owner_.options_.schedule);
    return scheduler::iteration_graph(layout, flow_, microbatches, messages, split, task_ms,
                                      message_ms_)
        .tasks;
  }

  /// Compute of a step; infinite where the plan breaks a bound.
  double step_ms(const balancer::MicrobatchPlan& plan) const {
    if (waits_too_long(plan, own_.size())) return kImpossible;
    auto timeline =
        scheduler::make_schedule(graph(plan), owner_.options_.schedule, owner_.in_flight_bounds());
    return timeline.ok() ? timeline.value().step_ms : kImpossible;
  }

 private:
  static std::vector<SampleShape> shapes_of(const DealtBatch& batch,
                                            const std::vector<std::int32_t>& own) {
    std::vector<SampleShape> shapes;
    for (const auto sample : own) shapes.push_back(batch.samples[at(sample)]);
    return shapes;
  }

  const Microbatching& owner_;
  const Work& work_;
  std::size_t pipeline_;
  const std::vector<std::int32_t>& own_;
  std::vector<SampleShape> shapes_;
  std::vector<std::int32_t> numbers_;
  scheduler::RowFlow flow_;
  scheduler::MessageCost message_ms_;
};

Result<balancer::MicrobatchPlan> Microbatching::cut(const DealtBatch& batch, const Work& work,
                                                    std::size_t pipeline) const {
  balancer::PolicyOptions options;
  options.microbatches = options_.microbatches;
  options.seed =
      options_.seed + 0x9E3779B97F4A7C15U * static_cast<std::uint64_t>(batch.step) + pipeline;
  options.pipeline_stages = static_cast<std::int64_t>(plan_.pipelines[pipeline].stages.size());
  options.evaluations_max = options_.evaluations;
  const auto workloads = pick(work.workloads, batch.pipelines[pipeline]);
  if (bounds_memory())
    options.llm_cap_ms = llm_cap_ms(plan_, work.costs, costs_->device_memory, PipelineId{pipeline},
                                    batch.pipelines[pipeline], balancer::total(workloads).llm_ms);
  if (options.llm_cap_ms && *options.llm_cap_ms <= 0)
    return Error{Errc::infeasible,
                 "a device of pipeline " + std::to_string(pipeline) +
                     " has no room for activations: its stages' parameters, gradients and "
                     "optimizer fill it",
                 "cluster.device_memory_gib", "raise it, or cut the llm into more stages"};
  std::optional<Alone> alone;
  if (work.costs.task_ms) {
    alone.emplace(*this, batch, work, pipeline);
    options.cost = [&](const balancer::MicrobatchPlan& plan) { return alone->step_ms(plan); };
    options.bound = [&](const balancer::MicrobatchPlan& plan) {
      return scheduler::lower_bound_ms(alone->graph(plan));
    };
  }
  return balancer::assign_microbatches(options_.policy, workloads, options);
}

/// What the plan of one pipeline does to balance and to the rows that wait.
void Microbatching::describe(const DealtBatch& batch, const Work& work, std::size_t pipeline,
                             const balancer::MicrobatchPlan& plan, Prediction& prediction) const {
  const auto& own = batch.pipelines[pipeline];
  const auto workloads = pick(work.workloads, own);
  const auto total = balancer::total(workloads);
  prediction.work_ms[pipeline] = total.encoder_ms + total.llm_ms;
  const auto plain =
      balancer::without_deferral(balancer::in_order_groups(own.size(), options_.microbatches));
  prediction.imbalance_in_order =
      std::max(prediction.imbalance_in_order, imbalance_of(workloads, plain));
  prediction.imbalance = std::max(prediction.imbalance, imbalance_of(workloads, plan));
  const auto encoder = places(plan.encoder, own.size()), llm = places(plan.llm, own.size());
  std::map<std::int32_t, TokenCount> held;
  for (std::size_t s = 0; s < own.size(); ++s) {
    if (llm[s] == encoder[s]) continue;
    ++prediction.deferred_samples;
    if (llm[s] > encoder[s]) held[encoder[s]] += boundary_rows(batch.samples[at(own[s])]);
  }
  for (const auto& [microbatch, rows] : held)
    prediction.held_rows = std::max(prediction.held_rows, rows);
}

/// Runs the plan on paper.
Status Microbatching::predict(const IterationPlan& iteration, const Work& work,
                              Prediction& prediction) const {
  std::size_t actions = 0;
  for (const auto& list : iteration.actions) actions += list.size();
  scheduler::SimulationOptions options;
  options.record_timeline = actions <= kTimelineActionsMax;
  auto simulated = scheduler::simulate(plan_, iteration, work.costs, options);
  if (!simulated.ok()) return std::move(simulated).error();
  auto& step = simulated.value();
  prediction.events = simulated_trace(iteration, step, work.costs.bytes_per_element);
  prediction.step_ms = step.step_ms;
  prediction.stage_ms = std::move(step.stage_ms);
  for (std::size_t s = 0; s < plan_.stages.size(); ++s)
    step.peak_memory_bytes[plan_.stages[s].devices.front().index()] -=
        work.costs.state_bytes(StageId{s});
  for (const double bytes : step.peak_memory_bytes)
    prediction.activations.push_back(Bytes{static_cast<std::int64_t>(bytes)});
  const auto width = plan_.model.at(plan_.model.llm()).hidden_width;
  prediction.held_bytes = Bytes{static_cast<std::int64_t>(
      static_cast<double>(prediction.held_rows * width) * work.costs.bytes_per_element)};
  return Done{};
}

Result<PredictedIteration> Microbatching::plan(DealtBatch batch) const {
  auto weighed = work_of(batch.samples);
  if (!weighed.ok()) return std::move(weighed).error();
  const Work work = std::move(weighed).value();
  PredictedIteration result;
  if (correction_)
    result.prediction.corrected_shapes = static_cast<std::int64_t>(correction_->corrected_shapes());
  result.prediction.work_ms.resize(batch.pipelines.size());
  std::vector<PipelineMicrobatches> microbatches;
  for (std::size_t p = 0; p < batch.pipelines.size(); ++p) {
    if (batch.pipelines[p].empty()) {
      microbatches.emplace_back();
      continue;
    }
    auto made = cut(batch, work, p);
    if (!made.ok()) return std::move(made).error();
    describe(batch, work, p, made.value(), result.prediction);
    microbatches.push_back(parts_of(made.value(), batch.pipelines[p], batch.samples));
  }
  auto iteration = order(batch, work, std::move(microbatches));
  if (!iteration.ok()) return std::move(iteration).error();
  result.iteration = std::move(iteration).value();
  if (costs_)
    if (auto done = predict(result.iteration, work, result.prediction); !done.ok())
      return std::move(done).error();
  return result;
}

void Microbatching::learn(const IterationPlan& iteration,
                          std::span<const observe::TraceEvent> events, double step_ms) {
  if (!correction_ || !correction_->tracking() || step_ms <= 0) return;
  const auto begin = std::chrono::steady_clock::now();
  const auto costs =
      scheduler::predicted_costs(plan_, costs_->model, iteration.samples, costs_->options);
  if (!costs.ok()) return;
  const scheduler::RowFlow flow(plan_.model, iteration.samples);
  double tokens = 0;
  for (const auto& sample : iteration.samples) tokens += static_cast<double>(sample.llm_tokens);
  for (const auto& event : events) {
    const auto kind = task_kind(event.action.kind);
    if (!kind) continue;
    const StageId stage = event.action.stage;
    const auto& sides = iteration.microbatches[plan_.at(stage).pipeline.index()];
    const auto& part = sides.of(side_of(plan_, stage))[event.action.microbatch.index()]
                           .parts[event.action.part.index()]
                           .samples;
    correction_->record(shape_of(plan_, flow, stage, part),
                        costs.value().task_ms(stage, part, *kind),
                        1e-6 * static_cast<double>(event.duration_ns()));
  }
  // The cost of watching is the time that it takes here, as if the step had waited for it.
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
  correction_->set_tracking_cost(tokens / step_ms, tokens / (step_ms + spent.count()));
  correction_->end_iteration();
}

}  // namespace troupe::engine
