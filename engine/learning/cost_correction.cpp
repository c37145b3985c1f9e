#include "engine/learning/cost_correction.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "scheduler/iteration/redistribution.hpp"

namespace troupe::engine {

namespace {

std::optional<scheduler::TaskKind> task_kind(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward: return scheduler::TaskKind::forward;
    case ActionKind::backward: return scheduler::TaskKind::backward;
    case ActionKind::backward_input: return scheduler::TaskKind::backward_input;
    case ActionKind::backward_weight: return scheduler::TaskKind::backward_weight;
    default: return std::nullopt;
  }
}

/// Plain work and the same corrected. Equal sums where no factor deviates, so their ratio is 1.
struct Sums {
  double plain = 0, corrected = 0;

  void add(double ms, double factor) {
    plain += ms;
    corrected += factor * ms;
  }
  double ratio() const { return plain > 0 ? corrected / plain : 1; }
};

}  // namespace

StageShares::StageShares(const ParallelPlan& plan, const scheduler::SampleCosts& costs,
                         std::span<const SampleShape> samples)
    : costs_(costs) {
  for (const ModuleSpec& module : plan.model.modules)
    is_llm_.push_back(module.kind == ModuleKind::llm);
  const scheduler::RowFlow flow(plan.model, samples);
  std::vector<std::size_t> sample_of(costs.shape_count());  // Of each shape one.
  for (std::size_t s = 0; s < samples.size(); ++s) sample_of[costs.shape_of(s)] = s;
  std::map<std::pair<std::vector<LayerRun>, Parallelism>, std::size_t> known;
  for (const Stage& stage : plan.stages) {
    const auto [kind, is_new] = known.try_emplace({stage.runs, stage.grid}, kinds_.size());
    kind_of_.push_back(kind->second);
    if (!is_new) continue;
    Kind& made = kinds_.emplace_back();
    std::vector<std::vector<scheduler::AlikeLayers>> layers;
    for (const LayerRun& run : stage.runs) {
      made.modules.push_back(run.module);
      costs.add(run, stage.grid, layers.emplace_back());
    }
    for (const std::size_t s : sample_of)
      for (std::size_t r = 0; r < layers.size(); ++r) {
        const auto passes = costs.sample(layers[r], s);
        made.brought.push_back({flow.hidden(made.modules[r], static_cast<std::int32_t>(s)),
                                passes.forward + passes.input_grad + passes.weight_grad});
      }
  }
}

balancer::WorkShape StageShares::part_shape(StageId stage,
                                            std::span<const std::int32_t> part) const {
  TokenCount rows = 0;
  for (const auto sample : part)
    for (const Share& share : of(stage, sample)) rows += share.shape.tokens;
  return {stage.value, rows};
}

double CostCorrection::factor_of(StageId stage, std::span<const std::int32_t> part,
                                 const StageShares& shares) const {
  Sums sums;
  for (const auto sample : part)
    for (const auto& share : shares.of(stage, sample))
      sums.add(share.predicted_ms, samples_.factor(share.shape));
  return sums.ratio();
}

scheduler::TaskCost CostCorrection::corrected(scheduler::TaskCost task_ms,
                                              std::shared_ptr<const StageShares> shares) const {
  return [this, task_ms = std::move(task_ms), shares = std::move(shares)](
             StageId stage, const std::vector<std::int32_t>& part, scheduler::TaskKind kind) {
    return parts_.corrected_ms(shares->part_shape(stage, part),
                               task_ms(stage, part, kind) * factor_of(stage, part, *shares));
  };
}

balancer::Workload CostCorrection::corrected(balancer::Workload weight, PipelineId pipeline,
                                             const StageShares& shares, std::int32_t sample) const {
  Sums encoder, llm;
  for (const StageId stage : plan_.stages_of(pipeline))
    for (const auto& share : shares.of(stage, sample))
      (share.llm ? llm : encoder).add(share.predicted_ms, samples_.factor(share.shape));
  return {weight.encoder_ms * encoder.ratio(), weight.llm_ms * llm.ratio()};
}

double CostCorrection::slowdown(ReplicaId replica, const StageShares& shares,
                                std::span<const std::int32_t> samples) const {
  std::map<DeviceId, Sums> devices;
  for (const StageId stage : plan_.at(replica).stages) {
    Sums own;
    for (const std::int32_t sample : samples)
      for (const auto& share : shares.of(stage, sample))
        own.add(share.predicted_ms, samples_.factor(share.shape));
    for (const DeviceId device : plan_.at(stage).devices) {
      devices[device].plain += own.plain;
      devices[device].corrected += own.corrected;
    }
  }
  Sums busiest;
  for (const auto& [device, own] : devices) {
    busiest.plain = std::max(busiest.plain, own.plain);
    busiest.corrected = std::max(busiest.corrected, own.corrected);
  }
  return busiest.ratio();
}

void CostCorrection::learn(const IterationPlan& iteration, const scheduler::TaskCost& task_ms,
                           const StageShares& shares, std::span<const observe::TraceEvent> events,
                           double step_ms) {
  if (!tracking()) return;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<balancer::ShapeShare> brought;
  for (const auto& event : events) {
    const auto kind = task_kind(event.action.kind);
    if (!kind) continue;
    const StageId stage = event.action.stage;
    const auto& part =
        samples_of(plan_, iteration, stage, event.action.microbatch, event.action.part);
    const double predicted_ms = task_ms(stage, part, *kind);
    const double measured_ms = 1e-6 * static_cast<double>(event.duration_ns());
    if (!(predicted_ms > 0)) continue;
    brought.clear();
    for (const auto sample : part)
      for (const auto& share : shares.of(stage, sample))
        brought.push_back({share.shape, share.predicted_ms});
    const double explained = samples_.record(brought, measured_ms / predicted_ms);
    parts_.record(shares.part_shape(stage, part), predicted_ms * explained, measured_ms);
  }
  samples_.end_iteration();
  double tokens = 0;
  for (const auto& sample : iteration.samples) tokens += static_cast<double>(sample.llm_tokens);
  // The cost of watching is the time that it takes here, as if the step had waited for it.
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
  parts_.set_tracking_cost(tokens / step_ms, tokens / (step_ms + spent.count()));
  parts_.end_iteration();
}

void CostCorrection::save(LearnedCosts& learned) const {
  const auto modules = static_cast<std::int32_t>(plan_.model.modules.size());
  for (const auto& [shape, entry] : samples_.factors().entries())
    learned.samples.push_back(
        {shape.module / modules,
         plan_.model.modules[static_cast<std::size_t>(shape.module % modules)].name, shape.tokens,
         entry.factor, entry.measurements});
  for (const auto& [shape, entry] : parts_.factors().entries())
    learned.parts.push_back({shape.module, {}, shape.tokens, entry.factor, entry.measurements});
  const auto watch = parts_.watch();
  learned.watches = watch.tracking;
  learned.benefit = watch.benefit;
  learned.benefit_steps = watch.iterations;
}

void CostCorrection::restore(const LearnedCosts& learned) {
  const auto& modules = plan_.model.modules;
  balancer::ShapeFactors::Entries samples, parts;
  for (const LearnedFactor& entry : learned.samples)
    for (std::size_t m = 0; m < modules.size(); ++m)
      if (modules[m].name == entry.module)
        samples[{
            static_cast<std::int32_t>(static_cast<std::size_t>(entry.stage) * modules.size() + m),
            entry.tokens}] = {entry.factor, entry.measurements};
  for (const LearnedFactor& entry : learned.parts)
    parts[{entry.stage, entry.tokens}] = {entry.factor, entry.measurements};
  samples_.restore(samples);
  parts_.restore(parts, {learned.watches, learned.benefit, learned.benefit_steps});
}

}  // namespace troupe::engine
