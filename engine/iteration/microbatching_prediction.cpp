// How `Microbatching` predicts the plans that it has made.

#include <cstddef>
#include <cstdint>
#include <utility>

#include "engine/iteration/microbatching.hpp"
#include "engine/iteration/simulated_trace.hpp"
#include "scheduler/simulate/predicted_costs.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::engine {

namespace {

constexpr std::size_t kTimelineActionsMax = 50'000;  // Nobody looks at more of one step.

}  // namespace

/// Runs the plan on paper: as it was made, and as stages run at present.
Status Microbatching::predict(const IterationPlan& iteration, const Work& work,
                              const scheduler::SimulationCosts& profile,
                              Prediction& prediction) const {
  auto simulated = simulate(iteration, profile, !is_calibrated());
  if (!simulated.ok()) return std::move(simulated).error();
  prediction.profile_step_ms = simulated.value().step_ms;
  prediction.profile_stage_ms = simulated.value().stage_ms;
  if (is_calibrated()) return predict_present(iteration, work, profile, prediction);
  note_present(iteration, work, std::move(simulated).value(), prediction);
  return Done{};
}

Status Microbatching::predict_present(const IterationPlan& iteration, const Work& work,
                                      const scheduler::SimulationCosts& profile,
                                      Prediction& prediction) const {
  auto simulated = simulate(iteration, correction_ ? work.costs : present_costs(profile), true);
  if (!simulated.ok()) return std::move(simulated).error();
  note_present(iteration, work, std::move(simulated).value(), prediction);
  return Done{};
}

Result<scheduler::SimulatedStep> Microbatching::simulate(const IterationPlan& iteration,
                                                         const scheduler::SimulationCosts& costs,
                                                         bool records) const {
  std::size_t actions = 0;
  for (const auto& list : iteration.actions) actions += list.size();
  scheduler::SimulationOptions options;
  options.record_timeline = records && actions <= kTimelineActionsMax;
  return scheduler::simulate(plan_, iteration, costs, options);
}

void Microbatching::note_present(const IterationPlan& iteration, const Work& work,
                                 scheduler::SimulatedStep step, Prediction& prediction) const {
  prediction.planned_stage_ms = correction_ ? step.stage_ms : prediction.profile_stage_ms;
  prediction.events = simulated_trace(iteration, step, work.costs.bytes_per_element);
  prediction.calibrated_step_ms = step.step_ms;
  prediction.calibrated_stage_ms = std::move(step.stage_ms);
  prediction.activations.clear();
  for (const double bytes : step.peak_activation_bytes)
    prediction.activations.push_back(Bytes{static_cast<std::int64_t>(bytes)});
  const auto width = plan_.model.at(plan_.model.llm()).hidden_width;
  prediction.held_bytes = Bytes{static_cast<std::int64_t>(
      static_cast<double>(prediction.held_rows * width) * work.costs.bytes_per_element)};
}

Status Microbatching::refresh(PredictedIteration& planned) const {
  if (!costs_ || !is_calibrated()) return Done{};
  const Work& work = *planned.work;
  return predict_present(planned.iteration, work, work.costs, planned.prediction);
}

scheduler::SimulationCosts Microbatching::profile_costs(
    const Work& work, const std::vector<MicrobatchList>& microbatches) const {
  if (!work.samples) return work.costs;
  return scheduler::with_summed_parts(work.costs, plan_, *work.samples, microbatches);
}

scheduler::SimulationCosts Microbatching::present_costs(scheduler::SimulationCosts profile) const {
  auto costs = profile;
  costs.task_ms = [this, task_ms = std::move(profile.task_ms)](
                      StageId stage, const std::vector<std::int32_t>& part,
                      scheduler::TaskKind kind) {
    return speeds_.factor(stage) * task_ms(stage, part, kind);
  };
  costs.optimizer_ms = [this, update_ms = std::move(profile.optimizer_ms)](StageId stage) {
    return speeds_.factor(stage) * update_ms(stage);
  };
  costs.group_optimizer_ms = [this, update_ms = std::move(profile.group_optimizer_ms)](
                                 GroupId group, StageId stage) {
    return (stage.valid() ? speeds_.factor(stage) : 1) * update_ms(group, stage);
  };
  return costs;
}

}  // namespace troupe::engine
