#include "engine/plan_summary.hpp"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "engine/stage_speeds.hpp"

namespace troupe::engine {

namespace {

/// `llm 0-3`, or `llm` for the whole module; the last layer is included.
std::string run_text(const ParallelPlan& plan, const LayerRun& run) {
  const ModuleSpec& module = plan.model.at(run.module);
  const bool whole =
      run.layers.begin == 0 && run.layers.end == static_cast<std::int32_t>(module.layers.size());
  if (whole) return module.name;
  return module.name + " " + std::to_string(run.layers.begin) + "-" +
         std::to_string(run.layers.end - 1);
}

std::string stage_text(const ParallelPlan& plan, StageId stage) {
  std::string text;
  for (const LayerRun& run : plan.at(stage).runs)
    text += (text.empty() ? "" : ", ") + run_text(plan, run);
  return text;
}

std::string time_line(const std::string& what, const StageTimes::Sums& ms, double steps) {
  char figures[128];
  const auto off = [&](double told) {
    return ms.measured > 0 ? 100 * (told / ms.measured - 1) : 0;
  };
  std::snprintf(figures, sizeof figures,
                "  profile %8.1f ms %+5.0f %%  calibrated %8.1f ms %+5.0f %%  measured %8.1f ms  ",
                ms.profile / steps, off(ms.profile), ms.calibrated / steps, off(ms.calibrated),
                ms.measured / steps);
  return figures + what;
}

}  // namespace

std::vector<std::string> layout_lines(const ParallelPlan& plan) {
  std::vector<std::string> lines;
  for (std::size_t p = 0; p < plan.pipelines.size() && p < kPipelinesShown; ++p) {
    std::string line = "pipeline " + std::to_string(p) + ":";
    for (const StageId stage : plan.pipelines[p].stages)
      line += (line.back() == ':' ? " node " : " | node ") +
              std::to_string(plan.node_of(stage).value) + ": " + stage_text(plan, stage);
    lines.push_back(std::move(line));
  }
  if (plan.pipelines.size() > kPipelinesShown)
    lines.push_back("and " + std::to_string(plan.pipelines.size() - kPipelinesShown) +
                    " more pipelines; plan.json has them");
  return lines;
}

std::string crowded_cores(const ParallelPlan& plan, const job::Cluster& cluster,
                          std::int32_t cores) {
  if (cluster.device != "cpu") return {};
  std::set<DeviceId> busy;
  for (const auto& stage : plan.stages) busy.insert(stage.devices.begin(), stage.devices.end());
  const auto local = std::min<std::int64_t>(
      std::ssize(busy), std::int64_t{cluster.local_nodes} * cluster.devices_per_node);
  const auto threads = local * cluster.threads_per_device;
  if (threads <= cores) return {};
  return std::to_string(threads) + " operator threads share the " + std::to_string(cores) +
         (cores == 1 ? " core" : " cores") +
         " of this machine: stages will take longer than predicted";
}

void StageTimes::add(const Prediction& prediction, std::span<const observe::TraceEvent> events,
                     double step_ms) {
  const auto& profile_ms = prediction.profile_stage_ms;
  if (profile_ms.empty()) return;
  if (!std::exchange(warm_, true)) return;
  ++steps_;
  const auto add = [](Sums& sums, const Sums& step) {
    sums.measured += step.measured;
    sums.profile += step.profile;
    sums.calibrated += step.calibrated;
  };
  stages_.resize(profile_ms.size());
  const auto measured_ms = measured_stage_ms(profile_ms.size(), events);
  for (std::size_t s = 0; s < profile_ms.size(); ++s)
    add(stages_[s], {measured_ms[s], profile_ms[s], prediction.calibrated_stage_ms[s]});
  add(step_, {step_ms, prediction.profile_step_ms, prediction.calibrated_step_ms});
}

std::vector<std::string> StageTimes::lines(const ParallelPlan& plan) const {
  if (steps_ == 0) return {};
  const auto steps = static_cast<double>(steps_);
  std::vector<std::string> lines{"times of a step, mean of " + std::to_string(steps_) +
                                 ": by the profile, by speeds measured in this run, and measured:"};
  const auto shown = std::min(kStagesShown, stages_.size());
  for (std::size_t s = 0; s < shown; ++s)
    lines.push_back(time_line("stage " + std::to_string(s) + " on node " +
                                  std::to_string(plan.node_of(StageId{s}).value) + ": " +
                                  stage_text(plan, StageId{s}),
                              stages_[s], steps));
  if (shown < stages_.size())
    lines.push_back("  and " + std::to_string(stages_.size() - shown) + " more stages");
  lines.push_back(time_line("step", step_, steps));
  return lines;
}

}  // namespace troupe::engine
