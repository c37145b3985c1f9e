#include "engine/microbatching.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "balancer/baselines.hpp"
#include "balancer/policies.hpp"
#include "scheduler/plan_iteration.hpp"
#include "scheduler/schedules.hpp"
#include "scheduler/simulate_plan.hpp"

namespace troupe::engine {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

constexpr double kImpossible = std::numeric_limits<double>::infinity();

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
                    encoder_side_trains(plan.model)) {}

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

Result<IterationPlan> Microbatching::order(const DealtBatch& batch, const Work& work,
                                           std::vector<PipelineMicrobatches> microbatches) const {
  scheduler::IterationInput input;
  input.step = batch.step;
  input.epoch_number = batch.epoch_number;
  input.samples = batch.samples;
  input.microbatches = std::move(microbatches);
  input.schedule = options_.schedule;
  if (options_.max_in_flight > 0)
    input.max_in_flight.assign(plan_.stages.size(), options_.max_in_flight);
  if (work.costs.task_ms) {
    input.task_cost = work.costs.task_ms;
    input.message_cost = scheduler::message_costs(plan_, work.costs);
  }
  return scheduler::plan_iteration(plan_, std::move(input));
}

/// Step time of one pipeline's samples alone; infinite where the plan breaks a bound.
double Microbatching::simulated_ms(const DealtBatch& batch, const Work& work, std::size_t pipeline,
                                   const balancer::MicrobatchPlan& plan) const {
  const auto& own = batch.pipelines[pipeline];
  if (waits_too_long(plan, own.size())) return kImpossible;
  std::vector<PipelineMicrobatches> microbatches(plan_.pipelines.size());
  microbatches[pipeline] = parts_of(plan, own, batch.samples);
  // Only this pipeline's samples, numbered anew: the other pipelines get nothing to do.
  DealtBatch alone{batch.step, batch.epoch_number, {}, {}};
  std::vector<std::int32_t> number(batch.samples.size(), -1);
  for (const auto sample : own) {
    number[at(sample)] = static_cast<std::int32_t>(alone.samples.size());
    alone.samples.push_back(batch.samples[at(sample)]);
  }
  for (auto* side : {&microbatches[pipeline].encoder, &microbatches[pipeline].llm})
    for (auto& microbatch : *side)
      for (auto& part : microbatch.parts)
        for (auto& sample : part.samples) sample = number[at(sample)];
  Work renumbered{{}, work.costs};
  const auto back = [&own](const std::vector<std::int32_t>& samples) {
    std::vector<std::int32_t> original;
    for (const auto sample : samples) original.push_back(own[at(sample)]);
    return original;
  };
  renumbered.costs.task_ms = [&](StageId stage, const std::vector<std::int32_t>& samples,
                                 scheduler::TaskKind kind) {
    return work.costs.task_ms(stage, back(samples), kind);
  };
  renumbered.costs.activation_bytes = nullptr;
  auto iteration = order(alone, renumbered, std::move(microbatches));
  if (!iteration.ok()) return kImpossible;
  auto step = scheduler::simulate(plan_, iteration.value(), renumbered.costs);
  return step.ok() ? step.value().step_ms : kImpossible;
}

Result<balancer::MicrobatchPlan> Microbatching::cut(const DealtBatch& batch, const Work& work,
                                                    std::size_t pipeline) const {
  balancer::PolicyOptions options;
  options.microbatches = options_.microbatches;
  options.seed =
      options_.seed + 0x9E3779B97F4A7C15U * static_cast<std::uint64_t>(batch.step) + pipeline;
  options.pipeline_stages = static_cast<std::int64_t>(plan_.pipelines[pipeline].stages.size());
  options.evaluations_max = options_.evaluations;
  if (work.costs.task_ms)
    options.cost = [&](const balancer::MicrobatchPlan& plan) {
      return simulated_ms(batch, work, pipeline, plan);
    };
  return balancer::assign_microbatches(options_.policy,
                                       pick(work.workloads, batch.pipelines[pipeline]), options);
}

Result<PredictedIteration> Microbatching::plan(DealtBatch batch) const {
  auto weighed = work_of(batch.samples);
  if (!weighed.ok()) return std::move(weighed).error();
  const Work work = std::move(weighed).value();
  PredictedIteration result;
  Prediction& prediction = result.prediction;
  std::vector<PipelineMicrobatches> microbatches;
  for (std::size_t p = 0; p < batch.pipelines.size(); ++p) {
    const auto& own = batch.pipelines[p];
    if (own.empty()) {
      microbatches.emplace_back();
      continue;
    }
    auto made = cut(batch, work, p);
    if (!made.ok()) return std::move(made).error();
    const balancer::MicrobatchPlan& plan = made.value();
    const auto workloads = pick(work.workloads, own);
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
    microbatches.push_back(parts_of(plan, own, batch.samples));
  }
  auto iteration = order(batch, work, std::move(microbatches));
  if (!iteration.ok()) return std::move(iteration).error();
  result.iteration = std::move(iteration).value();
  if (costs_)
    prediction.held_bytes = Bytes{static_cast<std::int64_t>(
        static_cast<double>(prediction.held_rows * plan_.model.at(plan_.model.llm()).hidden_width) *
        work.costs.bytes_per_element)};
  if (work.costs.task_ms) {
    auto step = scheduler::simulate(plan_, result.iteration, work.costs);
    if (!step.ok()) return std::move(step).error();
    prediction.step_ms = step.value().step_ms;
    prediction.stage_ms = std::move(step.value().stage_ms);
  }
  return result;
}

}  // namespace troupe::engine
