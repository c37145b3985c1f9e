#include "engine/learning/learned_state.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace troupe::engine {

namespace {

std::string place_of(const ParallelPlan& plan, const Stage& stage) {
  std::string text;
  for (const LayerRun& run : stage.runs)
    text += (text.empty() ? "" : ", ") + plan.model.at(run.module).name + " " +
            std::to_string(run.layers.begin) + "-" + std::to_string(run.layers.end);
  text += " on";
  for (const DeviceId device : stage.devices) {
    const DeviceSlot& slot = plan.devices[device.index()];
    text += " " + std::to_string(slot.node.value) + "." + std::to_string(slot.local_index);
  }
  return text;
}

bool is_same_layout(const std::vector<LearnedStage>& a, const std::vector<LearnedStage>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.place == y.place; });
}

/// Factors by what they are of, wherever it ran: the modules of the stage, the module, the size.
using Work = std::tuple<std::vector<std::string>, std::string, TokenCount>;

std::map<Work, LearnedFactor> by_work(const LearnedCosts& before,
                                      const std::vector<LearnedFactor>& factors) {
  std::map<Work, LearnedFactor> merged;
  for (const LearnedFactor& each : factors) {
    const auto& modules = before.stages[static_cast<std::size_t>(each.stage)].modules;
    // A sample takes what it takes in its module, whatever else the stage has.
    const bool is_part = each.module.empty();
    auto& sum = merged[{is_part ? modules : std::vector<std::string>{}, each.module, each.tokens}];
    const auto weight = static_cast<double>(each.measurements);
    const auto weight_before = static_cast<double>(sum.measurements);
    sum.factor =
        (weight_before * sum.factor + weight * each.factor) / std::max(1.0, weight_before + weight);
    sum.measurements += each.measurements;
  }
  return merged;
}

std::vector<LearnedFactor> for_stages(const LearnedCosts& before,
                                      const std::vector<LearnedFactor>& factors,
                                      const std::vector<LearnedStage>& stages) {
  std::vector<LearnedFactor> all;
  const auto merged = by_work(before, factors);
  for (std::size_t s = 0; s < stages.size(); ++s)
    for (const auto& [work, factor] : merged) {
      const auto& [modules, module, tokens] = work;
      const auto& own = stages[s].modules;
      const bool runs_it =
          module.empty() ? modules == own : std::find(own.begin(), own.end(), module) != own.end();
      if (runs_it)
        all.push_back(
            {static_cast<std::int32_t>(s), module, tokens, factor.factor, factor.measurements});
    }
  return all;
}

}  // namespace

std::vector<LearnedStage> learned_stages(const ParallelPlan& plan) {
  std::vector<LearnedStage> stages;
  for (const Stage& stage : plan.stages) {
    LearnedStage& known = stages.emplace_back(LearnedStage{place_of(plan, stage), {}, 0});
    for (const LayerRun& run : stage.runs) {
      const std::string& name = plan.model.at(run.module).name;
      if (std::find(known.modules.begin(), known.modules.end(), name) == known.modules.end())
        known.modules.push_back(name);
    }
  }
  return stages;
}

LearnedCosts carried_over(const LearnedCosts& before, const ParallelPlan& plan) {
  LearnedCosts now;
  now.profile = before.profile;
  now.stages = learned_stages(plan);
  if (is_same_layout(before.stages, now.stages)) return before;
  now.samples = for_stages(before, before.samples, now.stages);
  now.parts = for_stages(before, before.parts, now.stages);
  return now;
}

LearnedCosts save_learned(const ParallelPlan& plan, const StageSpeeds& speeds,
                          const CostCorrection* correction) {
  LearnedCosts learned;
  if (!speeds.known() && correction == nullptr) return learned;
  learned.stages = learned_stages(plan);
  learned.speed_steps = speeds.steps();
  for (std::size_t s = 0; s < speeds.factors().size(); ++s)
    learned.stages[s].speed = speeds.factors()[s];
  if (correction != nullptr) correction->save(learned);
  return learned;
}

void restore_learned(const LearnedCosts& before, const ParallelPlan& plan, StageSpeeds& speeds,
                     CostCorrection* correction) {
  if (before.stages.empty()) return;
  const LearnedCosts learned = carried_over(before, plan);
  std::vector<double> factors;
  for (const LearnedStage& stage : learned.stages) factors.push_back(stage.speed);
  speeds.restore(std::move(factors), learned.speed_steps);
  if (correction != nullptr) correction->restore(learned);
}

}  // namespace troupe::engine
