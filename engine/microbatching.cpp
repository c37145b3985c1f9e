#include "engine/microbatching.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "balancer/baselines.hpp"
#include "balancer/replica_assignment.hpp"
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

constexpr double kImpossible = std::numeric_limits<double>::infinity();

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

bool encoder_side_trains(const ModelGraph& model) {
  return std::any_of(model.modules.begin(), model.modules.end(), [](const ModuleSpec& module) {
    return module.kind != ModuleKind::llm && !module.freeze;
  });
}

}  // namespace

/// What each sample weighs, and the functions that cost its parts.
struct Microbatching::Work {
  std::vector<balancer::Workload> profile;    ///< Weights as the profile says.
  std::vector<balancer::Workload> workloads;  ///< The same as measured times correct them.
  scheduler::SimulationCosts costs;  ///< Corrected; empty functions where no costs are known.
  scheduler::TaskCost profile_ms;    ///< Of tasks, not corrected.
};

/// What one llm replica trains, with the encoders that feed it.
struct Microbatching::Share {
  PipelineId pipeline;
  ReplicaId llm;
  std::vector<std::int32_t> samples;  ///< Ascending.
  bool is_whole = true;               ///< The pipeline has one replica of each group.
  std::int64_t stages = 0;            ///< Of the llm replica and one replica of each other group.
};

Microbatching::Microbatching(const ParallelPlan& plan, MicrobatchingOptions options,
                             std::shared_ptr<const PlanningCosts> costs)
    : plan_(plan),
      options_(std::move(options)),
      costs_(std::move(costs)),
      splits_parts_(scheduler::runs_parts_apart(options_.schedule) &&
                    encoder_side_trains(plan.model)) {
  if (options_.adaptive_correction && costs_) correction_.emplace(plan_);
}

Result<Microbatching::Work> Microbatching::work_of(const DealtBatch& batch) const {
  Work work;
  if (!costs_) {
    for (const auto& sample : batch.samples)
      work.profile.push_back(
          {static_cast<double>(boundary_rows(sample)), static_cast<double>(sample.llm_tokens)});
    work.workloads = work.profile;
    return work;
  }
  const auto& degrees = costs_->options.parallelisms;
  auto weights = scheduler::sample_workloads(costs_->model, batch.samples, degrees);
  if (!weights.ok()) return std::move(weights).error();
  for (const auto& weight : weights.value())
    work.profile.push_back({weight.encoder_total_ms, weight.llm_total_ms});
  work.workloads = work.profile;
  const auto samples = scheduler::SampleSums(costs_->model, batch.samples).at(degrees);
  if (!samples.ok()) return samples.error();
  work.costs = scheduler::predicted_costs(plan_, samples.value(), costs_->options);
  work.profile_ms = work.costs.task_ms;
  if (!correction_) return work;
  const auto shares = std::make_shared<const StageShares>(plan_, samples.value(), batch.samples);
  work.costs.task_ms = correction_->corrected(std::move(work.costs.task_ms), shares);
  for (std::size_t p = 0; p < batch.pipelines.size(); ++p)
    for (const auto sample : batch.pipelines[p])
      work.workloads[at(sample)] =
          correction_->corrected(work.profile[at(sample)], PipelineId{p}, *shares, sample);
  return work;
}

std::vector<std::int32_t> Microbatching::in_flight_bounds() const {
  if (options_.max_in_flight == 0) return {};
  return std::vector<std::int32_t>(plan_.stages.size(), options_.max_in_flight);
}

Result<IterationPlan> Microbatching::order(const DealtBatch& batch, const Work& work,
                                           std::vector<MicrobatchList> microbatches) const {
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

std::optional<double> Microbatching::llm_cap(const Work& work, const Share& share,
                                             double llm_ms) const {
  if (!bounds_memory()) return std::nullopt;
  return llm_cap_ms(plan_, work.costs, costs_->device_memory, share.llm, share.samples, llm_ms);
}

Result<std::vector<Microbatching::Share>> Microbatching::shares_of(const DealtBatch& batch,
                                                                   const Work& work,
                                                                   PipelineId pipeline) const {
  std::vector<Share> shares;
  std::int64_t stages_before = 0;
  ModuleGroupId group;
  for (const ReplicaId replica : plan_.at(pipeline).replicas) {
    if (plan_.is_llm(replica))
      shares.push_back({pipeline, replica, {}, true, std::ssize(plan_.at(replica).stages)});
    else if (plan_.at(replica).group != group)
      stages_before += std::ssize(plan_.at(replica).stages);
    group = plan_.at(replica).group;
  }
  const bool is_whole = plan_.at(pipeline).replicas.size() == plan_.module_groups.size();
  for (Share& share : shares) share.is_whole = is_whole, share.stages += stages_before;
  const auto& own = batch.pipelines[pipeline.index()];
  if (shares.size() == 1) return shares.front().samples = own, shares;
  const std::vector<double> speeds(shares.size(), 1);
  auto spread = balancer::assign_replicas(pick(work.workloads, own), speeds);
  if (!spread.ok()) return std::move(spread).error();
  for (std::size_t s = 0; s < shares.size(); ++s) {
    for (const auto place : spread.value()[s]) shares[s].samples.push_back(own[at(place)]);
    std::sort(shares[s].samples.begin(), shares[s].samples.end());
  }
  return shares;
}

Result<balancer::MicrobatchPlan> Microbatching::assign(
    const DealtBatch& batch, const Work& work, const Share& share, const PipelineCosts* alone,
    std::span<const balancer::Workload> weights) const {
  balancer::PolicyOptions options;
  options.microbatches = options_.microbatches;
  // A stream of its own for each llm replica of the job.
  std::uint64_t number = 0;
  for (std::size_t r = 0; r < share.llm.index(); ++r) number += plan_.is_llm(ReplicaId{r}) ? 1 : 0;
  options.seed =
      options_.seed + 0x9E3779B97F4A7C15U * static_cast<std::uint64_t>(batch.step) + number;
  options.pipeline_stages = share.stages;
  options.evaluations_max = options_.evaluations;
  const auto total = balancer::total(weights);
  options.llm_cap_ms = llm_cap(work, share, total.llm_ms);
  if (options.llm_cap_ms && *options.llm_cap_ms <= 0)
    return Error{Errc::infeasible,
                 "a device of pipeline " + std::to_string(share.pipeline.value) +
                     " has no room for activations: its stages' parameters, gradients and "
                     "optimizer fill it",
                 "cluster.device_memory_gib", "raise it, or cut the llm into more stages"};
  std::optional<scheduler::StepEstimator> estimator;
  if (alone != nullptr) {
    options.cost = [&](const balancer::MicrobatchPlan& plan) { return alone->step_ms(plan); };
    if (options_.policy == "auto") estimator = alone->estimator(total);
    if (estimator)
      options.estimate = [&](std::span<const balancer::Workload> loads) {
        std::vector<scheduler::ModuleWork> microbatches;
        for (const auto& load : loads) microbatches.push_back({load.encoder_ms, load.llm_ms});
        return (*estimator)(microbatches);
      };
    const auto stages = static_cast<double>(options.pipeline_stages);
    options.work_max = planning_work((total.encoder_ms + total.llm_ms) / stages);
    options.costing_work = kSampleStageWork * static_cast<double>(weights.size()) * stages +
                           kTaskWork * stages * static_cast<double>(options_.microbatches);
  }
  return balancer::assign_microbatches(options_.policy, weights, options);
}

Result<balancer::MicrobatchPlan> Microbatching::cut(const DealtBatch& batch, const Work& work,
                                                    const Share& share) const {
  const auto& own = share.samples;
  std::optional<PipelineCosts> alone;
  if (work.costs.task_ms && share.is_whole)
    alone.emplace(plan_,
                  PipelineRules{share.pipeline, options_.schedule, options_.microbatches,
                                in_flight_bounds(), splits_parts_},
                  work.costs, own, batch.samples);
  const PipelineCosts* costs = alone ? &*alone : nullptr;
  const auto weights = pick(work.workloads, own), profile = pick(work.profile, own);
  auto corrected = assign(batch, work, share, costs, weights);
  if (weights == profile || !alone) return corrected;
  // Memory is proportional to the profile's work, so that is what a cap is checked by.
  const auto cap = llm_cap(work, share, balancer::total(profile).llm_ms);
  const auto cost = [&](const Result<balancer::MicrobatchPlan>& plan) {
    if (!plan.ok()) return kImpossible;
    const auto loads = balancer::group_loads(profile, plan.value().llm);
    if (cap && balancer::llm_spread(loads).max_ms > *cap) return kImpossible;
    return alone->step_ms(plan.value());
  };
  const double corrected_ms = cost(corrected);
  // `auto` has already looked at many plans by their corrected costs.
  if (options_.policy == "auto" && corrected_ms < kImpossible) return corrected;
  auto plain = assign(batch, work, share, costs, profile);
  return corrected_ms <= cost(plain) && corrected_ms < kImpossible ? std::move(corrected)
                                                                   : std::move(plain);
}

double Microbatching::planning_work(double step_ms) const {
  const double planning_ms = std::clamp(kPlanningShare * step_ms, kPlanningMsMin, kPlanningMsMax);
  const auto pipelines = static_cast<double>(plan_.pipelines.size());
  return kWorkPerMs * std::max(kPipelineMsMin, planning_ms / pipelines);
}

/// What the plan of one share does to balance and to the rows that wait.
void Microbatching::describe(const DealtBatch& batch, const Work& work, const Share& share,
                             const balancer::MicrobatchPlan& plan, Prediction& prediction) const {
  const auto& own = share.samples;
  const auto workloads = pick(work.workloads, own);
  // Not as measured: a pipeline is slow by what its devices take for this.
  const auto total = balancer::total(pick(work.profile, own));
  prediction.work_ms[share.pipeline.index()] += total.encoder_ms + total.llm_ms;
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
  const bool calibrated = correction_ || speeds_.known();
  auto costs = work.costs;
  costs.task_ms = work.profile_ms;
  scheduler::SimulationOptions options;
  options.record_timeline = actions <= kTimelineActionsMax && !calibrated;
  auto simulated = scheduler::simulate(plan_, iteration, costs, options);
  if (!simulated.ok()) return std::move(simulated).error();
  prediction.profile_step_ms = simulated.value().step_ms;
  prediction.profile_stage_ms = simulated.value().stage_ms;
  if (calibrated) {
    options.record_timeline = actions <= kTimelineActionsMax;
    costs = correction_ ? work.costs : present_costs(work);
    simulated = scheduler::simulate(plan_, iteration, costs, options);
    if (!simulated.ok()) return std::move(simulated).error();
  }
  auto& step = simulated.value();
  prediction.planned_stage_ms = correction_ ? step.stage_ms : prediction.profile_stage_ms;
  prediction.events = simulated_trace(iteration, step, work.costs.bytes_per_element);
  prediction.calibrated_step_ms = step.step_ms;
  prediction.calibrated_stage_ms = std::move(step.stage_ms);
  for (std::size_t s = 0; s < plan_.stages.size(); ++s)
    step.peak_memory_bytes[plan_.stages[s].devices.front().index()] -=
        work.costs.state_bytes(StageId{s});
  for (std::size_t d = 0; d < step.peak_memory_bytes.size(); ++d)
    prediction.activations.push_back(Bytes{static_cast<std::int64_t>(
        step.peak_memory_bytes[d] - work.costs.standby_bytes(DeviceId{d}))});
  const auto width = plan_.model.at(plan_.model.llm()).hidden_width;
  prediction.held_bytes = Bytes{static_cast<std::int64_t>(
      static_cast<double>(prediction.held_rows * width) * work.costs.bytes_per_element)};
  return Done{};
}

Status Microbatching::cut_pipeline(const DealtBatch& batch, const Work& work, PipelineId pipeline,
                                   std::vector<MicrobatchList>& microbatches,
                                   Prediction& prediction) const {
  auto shares = shares_of(batch, work, pipeline);
  if (!shares.ok()) return std::move(shares).error();
  std::vector<scheduler::ReplicaCut> cuts;
  for (const Share& share : shares.value()) {
    auto& made = cuts.emplace_back();
    if (share.samples.empty()) continue;
    auto plan = cut(batch, work, share);
    if (!plan.ok()) return std::move(plan).error();
    describe(batch, work, share, plan.value(), prediction);
    made = parts_of(plan.value(), share.samples, batch.samples, splits_parts_);
  }
  const auto load_ms = [&](ReplicaId replica, const Microbatch& microbatch) {
    double sum = 0;
    for (const Part& part : microbatch.parts)
      for (const StageId stage : plan_.at(replica).stages)
        sum += work.costs.task_ms
                   ? work.costs.task_ms(stage, part.samples, scheduler::TaskKind::forward)
                   : static_cast<double>(part.samples.size());
    return sum;
  };
  scheduler::deal_microbatches(plan_, pipeline, std::move(cuts), load_ms, microbatches);
  return Done{};
}

Result<PredictedIteration> Microbatching::plan(DealtBatch batch) const {
  auto weighed = work_of(batch);
  if (!weighed.ok()) return std::move(weighed).error();
  const Work work = std::move(weighed).value();
  PredictedIteration result;
  if (correction_)
    result.prediction.corrected_shapes = static_cast<std::int64_t>(correction_->corrected_shapes());
  result.prediction.work_ms.resize(batch.pipelines.size());
  std::vector<MicrobatchList> microbatches(plan_.replicas.size());
  for (std::size_t p = 0; p < batch.pipelines.size(); ++p)
    if (auto done = cut_pipeline(batch, work, PipelineId{p}, microbatches, result.prediction);
        !done.ok())
      return std::move(done).error();
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
  const auto samples =
      scheduler::SampleSums(costs_->model, iteration.samples).at(costs_->options.parallelisms);
  if (!samples.ok()) return;
  correction_->learn(iteration,
                     scheduler::predicted_costs(plan_, samples.value(), costs_->options).task_ms,
                     StageShares(plan_, samples.value(), iteration.samples), events, step_ms);
}

}  // namespace troupe::engine
