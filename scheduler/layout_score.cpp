#include "scheduler/layout_score.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>

#include "runtime/vocabulary/random.hpp"
#include "scheduler/plan_iteration.hpp"

namespace troupe::scheduler {

namespace {

constexpr std::int64_t kBatches = 3;
constexpr std::int64_t kManySamples = 256;  ///< So many already have the mean mix.
constexpr std::int64_t kWeighedMicrobatches = 8;
constexpr std::int64_t kWeighedSamples = 128;  ///< The simulator has the last word on all of them.

std::int32_t narrow(std::int64_t count) { return static_cast<std::int32_t>(count); }

/// Every layer a stage of its own, so that the costs of stages are those of layers.
Result<ParallelPlan> finest_plan(const ModelGraph& model) {
  HandLayout layout;
  auto& stages = layout.pipelines.emplace_back();
  for (const auto& module : model.modules)
    for (std::int32_t l = 0; l < static_cast<std::int32_t>(module.layers.size()); ++l)
      stages.push_back({narrow(static_cast<std::int64_t>(stages.size())),
                        0,
                        {{module.name, LayerRange{l, l + 1}}}});
  return place_by_hand(model, layout, {narrow(static_cast<std::int64_t>(stages.size())), 1});
}

}  // namespace

void add_step(const SimulatedStep& step, PredictedStep& sum) {
  sum.step_ms += step.step_ms;
  sum.bubble += step.bubble;
  sum.stage_ms.resize(step.stage_ms.size());
  sum.stage_bubble.resize(step.stage_bubble.size());
  sum.peak_memory_bytes.resize(step.peak_memory_bytes.size());
  for (std::size_t s = 0; s < step.stage_ms.size(); ++s) {
    sum.stage_ms[s] += step.stage_ms[s];
    sum.stage_bubble[s] += step.stage_bubble[s];
  }
  for (std::size_t d = 0; d < step.peak_memory_bytes.size(); ++d)
    sum.peak_memory_bytes[d] = std::max(sum.peak_memory_bytes[d], step.peak_memory_bytes[d]);
}

void divide_steps(PredictedStep& sum, double count) {
  sum.step_ms /= count;
  sum.bubble /= count;
  for (auto& ms : sum.stage_ms) ms /= count;
  for (auto& share : sum.stage_bubble) share /= count;
}

std::vector<SampleShape> draw_batch(const std::vector<SampleShape>& samples, std::int64_t count,
                                    std::uint64_t seed) {
  Random random(seed);
  std::vector<std::size_t> order;
  std::vector<SampleShape> batch;
  for (std::int64_t i = 0; i < count; ++i) {
    if (order.empty()) {
      order.resize(samples.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
    }
    const auto drawn = static_cast<std::size_t>(random.below(order.size()));
    batch.push_back(samples[order[drawn]]);
    batch.back().position = i;
    order[drawn] = order.back();
    order.pop_back();
  }
  return batch;
}

LayoutScorer::LayoutScorer(const AutoLayoutRequest& request)
    : request_(request), finest_(finest_plan(request.model->graph())) {
  const auto batches = std::clamp<std::int64_t>(kManySamples / request.global_batch, 1, kBatches);
  for (std::int64_t b = 0; b < batches; ++b)
    batches_.push_back(draw_batch(request.samples, request.global_batch,
                                  request.seed + static_cast<std::uint64_t>(b)));
}

Result<LayerWeights> LayoutScorer::weights(std::int32_t pipelines,
                                           const std::vector<Parallelism>& parallelisms) const {
  const auto& plan = finest_;
  if (!plan.ok()) return plan.error();
  PredictionOptions options = request_.prediction;
  options.parallelisms = parallelisms;
  auto microbatches =
      assign_by_count(narrow(request_.global_batch), pipelines, narrow(request_.microbatches))
          .front()
          .llm;
  // Of large microbatches fewer have as many samples.
  const auto size = static_cast<std::int64_t>(microbatches.front().parts.front().samples.size());
  const auto weighed_count = static_cast<std::size_t>(std::clamp<std::int64_t>(
      kWeighedSamples / std::max<std::int64_t>(size, 1), 1, kWeighedMicrobatches));
  if (microbatches.size() > weighed_count) microbatches.resize(weighed_count);
  // Samples are dealt in order, so these microbatches have the first ones.
  std::size_t weighed = 0;
  for (const auto& microbatch : microbatches) weighed += microbatch.parts.front().samples.size();
  const std::span samples(batches_.front().data(), weighed);
  auto costs = predicted_costs(plan.value(), *request_.model, samples, options);
  if (!costs.ok()) return std::move(costs).error();

  LayerWeights weights;
  for (std::size_t s = 0; s < plan.value().stages.size(); ++s) {
    const LayerRun& run = plan.value().stages[s].runs.front();
    weights.layers.push_back({run.module, run.layers.begin});
    double work_ms = 0, activations = 0;
    for (const auto& microbatch : microbatches) {
      const auto& samples = microbatch.parts.front().samples;
      work_ms += costs.value().task_ms(StageId{s}, samples, TaskKind::forward) +
                 costs.value().task_ms(StageId{s}, samples, TaskKind::backward);
      activations = std::max(activations, costs.value().activation_bytes(StageId{s}, samples));
    }
    weights.work_ms.push_back(work_ms /
                              static_cast<double>(std::max<std::size_t>(microbatches.size(), 1)));
    weights.activation_bytes.push_back(activations);
    weights.state_bytes.push_back(costs.value().state_bytes(StageId{s}));
  }
  // Stages stand in topological order, which need not be that of the modules.
  std::vector<std::size_t> order(weights.layers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](auto a, auto b) { return weights.layers[a] < weights.layers[b]; });
  LayerWeights sorted;
  for (const auto i : order) {
    sorted.layers.push_back(weights.layers[i]);
    sorted.work_ms.push_back(weights.work_ms[i]);
    sorted.state_bytes.push_back(weights.state_bytes[i]);
    sorted.activation_bytes.push_back(weights.activation_bytes[i]);
  }
  return sorted;
}

Result<PredictedStep> LayoutScorer::score(const ParallelPlan& plan,
                                          const std::vector<Parallelism>& parallelisms,
                                          std::size_t batches) const {
  PredictionOptions options = request_.prediction;
  options.parallelisms = parallelisms;
  const std::size_t count = batches == 0 ? batches_.size() : std::min(batches, batches_.size());
  PredictedStep sum;
  for (std::size_t b = 0; b < count; ++b) {
    auto costs = predicted_costs(plan, *request_.model, batches_[b], options);
    if (!costs.ok()) return std::move(costs).error();
    IterationInput input;
    input.samples = batches_[b];
    input.schedule = request_.schedule;
    input.microbatches = assign_by_count(narrow(request_.global_batch),
                                         narrow(static_cast<std::int64_t>(plan.pipelines.size())),
                                         narrow(request_.microbatches));
    input.task_cost = costs.value().task_ms;
    input.message_cost = message_costs(plan, costs.value());
    auto iteration = plan_iteration(plan, std::move(input));
    if (!iteration.ok()) return std::move(iteration).error();
    auto step = simulate(plan, iteration.value(), costs.value());
    if (!step.ok()) return std::move(step).error();
    add_step(step.value(), sum);
  }
  divide_steps(sum, static_cast<double>(count));
  return sum;
}

double LayoutScorer::actions(std::int32_t pipelines, std::int32_t groups) const {
  const auto microbatches = static_cast<double>(
      std::min(request_.microbatches, request_.global_batch / std::max(pipelines, 1)));
  // Forward, backward and two transfers of each in every batch, with a second stage on some groups.
  return static_cast<double>(batches_.size()) * 8 * groups * (microbatches + 4);
}

}  // namespace troupe::scheduler
