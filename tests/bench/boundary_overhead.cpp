#include "tests/bench/boundary_overhead.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/simulate/predicted_costs.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::bench {

namespace {

/// Per module group the work of a microbatch that has some, on average.
std::vector<double> mean_works(const ParallelPlan& plan, std::span<const engine::PhaseWork> works,
                               std::span<const MicrobatchList> microbatches) {
  std::vector<double> means(works.size()), counts(works.size());
  for (std::size_t r = 0; r < microbatches.size(); ++r) {
    const std::size_t group = plan.replicas[r].group.index();
    for (const Microbatch& microbatch : microbatches[r]) {
      double work = 0;
      for (const Part& part : microbatch.parts)
        for (const auto sample : part.samples) work += works[group].work_of(at(sample));
      means[group] += work;
      counts[group] += work > 0 ? 1 : 0;
    }
  }
  for (std::size_t g = 0; g < means.size(); ++g) means[g] /= counts[g];
  return means;
}

/// A medium for every encoder that has work, of so many rows as that makes.
std::vector<SampleShape> shapes_of(std::span<const engine::PhaseWork> works,
                                   std::span<const double> means, double rows_of_mean) {
  std::vector<SampleShape> samples(works.back().samples.size());
  for (std::size_t s = 0; s < samples.size(); ++s) {
    SampleShape& sample = samples[s];
    sample.position = static_cast<std::int64_t>(s);
    sample.llm_tokens = sample.trained_tokens = 1;
    for (std::size_t g = 0; g + 1 < works.size(); ++g) {
      const double share = works[g].samples[s] / means[g];
      if (!(share > 0)) continue;
      const auto rows =
          std::max<std::int32_t>(1, static_cast<std::int32_t>(std::lround(rows_of_mean * share)));
      sample.media.push_back({ModuleId{g}, {{rows, rows, rows, 0, 0}}});
      sample.llm_tokens += rows;
    }
  }
  return samples;
}

/// A third of a stage's time forward, the rest backward.
scheduler::TaskCost task_cost(const ParallelPlan& plan, std::span<const engine::PhaseWork> works,
                              std::vector<double> means, double stage_ms) {
  return [&plan, works, means = std::move(means), stage_ms](
             StageId stage, const std::vector<std::int32_t>& part, scheduler::TaskKind kind) {
    const std::size_t group = plan.at(plan.at(stage).replica).group.index();
    double work = 0;
    for (const auto sample : part) work += works[group].work_of(at(sample));
    const double passes = kind == scheduler::TaskKind::backward ? 2 : 1;
    return passes / 3 * stage_ms * work / means[group];
  };
}

}  // namespace

Result<BoundaryStep> boundary_step(const ParallelPlan& plan,
                                   std::span<const engine::PhaseWork> works,
                                   const std::vector<MicrobatchList>& microbatches,
                                   const StageSizes& sizes, const scheduler::DeviceSpeeds& speeds) {
  ParallelPlan wide = plan;
  for (ModuleSpec& module : wide.model.modules) module.output_width = sizes.columns;
  const auto means = mean_works(wide, works, microbatches);
  auto costs = scheduler::link_and_sum_costs({Dtype::bf16, speeds});
  costs.task_ms = task_cost(wide, works, means, sizes.stage_ms);
  scheduler::IterationInput input;
  input.samples = shapes_of(works, means, sizes.rows);
  input.microbatches = microbatches;
  input.schedule = "three-phase";
  input.task_cost = costs.task_ms;
  input.message_cost = scheduler::message_costs(wide, costs);
  input.routes.pin = Route::direct;  // All stages have one device.
  const auto iteration = scheduler::plan_iteration(wide, std::move(input));
  if (!iteration.ok()) return iteration.error();
  const auto step = scheduler::simulate(wide, iteration.value(), costs);
  if (!step.ok()) return step.error();
  costs.device = costs.node = costs.network = {};
  const auto alone = scheduler::simulate(wide, iteration.value(), costs);
  if (!alone.ok()) return alone.error();
  return BoundaryStep{step.value().step_ms, alone.value().step_ms};
}

}  // namespace troupe::bench
