#include "engine/microbatching.hpp"

#include <algorithm>
#include <chrono>
#include <map>

#include "balancer/baselines.hpp"
#include "engine/memory_bounds.hpp"
#include "engine/pipeline_costs.hpp"
#include "engine/simulated_trace.hpp"
#include "scheduler/plan_iteration.hpp"
#include "scheduler/predicted_costs.hpp"
#include "scheduler/redistribution.hpp"
#include "scheduler/schedules.hpp"
#include "scheduler/simulate_plan.hpp"
#include "scheduler/step_estimator.hpp"

namespace troupe::engine {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

constexpr std::size_t kTimelineActionsMax = 50'000;  // Nobody looks at more of one step.

// What `auto` may take: a small share of a step, since it plans beside the step before.
constexpr double kPlanningShare = 0.025;
constexpr double kPlanningMsMin = 45;
constexpr double kPlanningMsMax = 500;
constexpr double kPipelineMsMin = 3;

// Units of `balancer::PolicyWork`: a millisecond's; per sample and stage, and per stage and
// microbatch of a plan that is costed.
constexpr double kWorkPerMs = 10'000;
constexpr double kSampleStageWork = 2;
constexpr double kTaskWork = 45;

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
  if (input.max_in_flight.empty() && bounds_memory()) {
    auto bounds = memory_bounds(plan_, work.costs, costs_->device_memory, input.microbatches);
    if (!bounds.ok()) return std::move(bounds).error();
    input.max_in_flight = std::move(bounds).value();
  }
  if (work.costs.task_ms) {
    input.task_cost = work.costs.task_ms;
    input.message_cost = scheduler::message_costs(plan_, work.costs);
  }
  return scheduler::plan_iteration(plan_, std::move(input));
}

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
  std::optional<PipelineCosts> alone;
  std::optional<scheduler::StepEstimator> estimator;
  if (work.costs.task_ms) {
    alone.emplace(plan_,
                  PipelineRules{PipelineId{pipeline}, options_.schedule, options_.microbatches,
                                in_flight_bounds(), splits_parts_},
                  work.costs, batch.pipelines[pipeline], batch.samples);
    options.cost = [&](const balancer::MicrobatchPlan& plan) { return alone->step_ms(plan); };
    const auto total = balancer::total(workloads);
    if (options_.policy == "auto") estimator = alone->estimator(total);
    if (estimator)
      options.estimate = [&](std::span<const balancer::Workload> loads) {
        std::vector<scheduler::ModuleWork> microbatches;
        for (const auto& load : loads) microbatches.push_back({load.encoder_ms, load.llm_ms});
        return (*estimator)(microbatches);
      };
    const auto stages = static_cast<double>(options.pipeline_stages);
    options.work_max = planning_work((total.encoder_ms + total.llm_ms) / stages);
    options.costing_work = kSampleStageWork * static_cast<double>(workloads.size()) * stages +
                           kTaskWork * stages * static_cast<double>(options_.microbatches);
  }
  return balancer::assign_microbatches(options_.policy, workloads, options);
}

double Microbatching::planning_work(double step_ms) const {
  const double planning_ms = std::clamp(kPlanningShare * step_ms, kPlanningMsMin, kPlanningMsMax);
  const auto pipelines = static_cast<double>(plan_.pipelines.size());
  return kWorkPerMs * std::max(kPipelineMsMin, planning_ms / pipelines);
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
  const auto encoder = balancer::group_of(plan.encoder, own.size()),
             llm = balancer::group_of(plan.llm, own.size());
  std::map<std::int32_t, TokenCount> held;
  for (std::size_t s = 0; s < own.size(); ++s) {
    if (llm[s] == encoder[s]) continue;
    ++prediction.deferred_samples;
    if (llm[s] > encoder[s]) held[encoder[s]] += boundary_rows(batch.samples[at(own[s])]);
  }
  for (const auto& [microbatch, rows] : held)
    prediction.held_rows = std::max(prediction.held_rows, rows);
}

/// Runs the plan on paper: as it was made, and as stages run at present.
Status Microbatching::predict(const IterationPlan& iteration, const Work& work,
                              Prediction& prediction) const {
  std::size_t actions = 0;
  for (const auto& list : iteration.actions) actions += list.size();
  scheduler::SimulationOptions options;
  options.record_timeline = actions <= kTimelineActionsMax && !speeds_.known();
  auto simulated = scheduler::simulate(plan_, iteration, work.costs, options);
  if (!simulated.ok()) return std::move(simulated).error();
  prediction.profile_step_ms = simulated.value().step_ms;
  prediction.profile_stage_ms = simulated.value().stage_ms;
  if (speeds_.known()) {
    options.record_timeline = actions <= kTimelineActionsMax;
    simulated = scheduler::simulate(plan_, iteration, present_costs(work), options);
    if (!simulated.ok()) return std::move(simulated).error();
  }
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
    microbatches.push_back(
        parts_of(made.value(), batch.pipelines[p], batch.samples, splits_parts_));
  }
  auto iteration = order(batch, work, std::move(microbatches));
  if (!iteration.ok()) return std::move(iteration).error();
  result.iteration = std::move(iteration).value();
  if (costs_)
    if (auto done = predict(result.iteration, work, result.prediction); !done.ok())
      return std::move(done).error();
  return result;
}

scheduler::SimulationCosts Microbatching::present_costs(const Work& work) const {
  auto costs = work.costs;
  costs.task_ms = [this, &work](StageId stage, const std::vector<std::int32_t>& part,
                                scheduler::TaskKind kind) {
    return speeds_.factor(stage) * work.costs.task_ms(stage, part, kind);
  };
  costs.optimizer_ms = [this, &work](StageId stage) {
    return speeds_.factor(stage) * work.costs.optimizer_ms(stage);
  };
  return costs;
}

void Microbatching::learn(const IterationPlan& iteration, const Prediction& prediction,
                          std::span<const observe::TraceEvent> events, double step_ms) {
  if (!costs_ || step_ms <= 0) return;
  if (!correction_)
    speeds_.learn(prediction.profile_stage_ms, measured_stage_ms(plan_.stages.size(), events));
  else if (correction_->tracking())
    correct(iteration, events, step_ms);
}

void Microbatching::correct(const IterationPlan& iteration,
                            std::span<const observe::TraceEvent> events, double step_ms) {
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
