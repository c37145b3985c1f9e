#include "engine/iteration/plan_summary.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <set>
#include <utility>

#include "engine/iteration/plan_guard.hpp"
#include "engine/learning/stage_speeds.hpp"
#include "scheduler/layout/layout_request.hpp"
#include "scheduler/simulate/predicted_costs.hpp"
#include "scheduler/state/standby_holders.hpp"

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

/// `standby: node 0: llm 2-3 | node 1: vision`; empty where nobody is on standby.
std::string standby_text(const ParallelPlan& plan) {
  std::string line;
  for (std::size_t d = 0; d < plan.devices.size(); ++d) {
    const auto kept = scheduler::standby_runs(plan, DeviceId{d});
    std::string text;
    for (const LayerRun& run : kept.runs) text += (text.empty() ? "" : ", ") + run_text(plan, run);
    for (const std::string& name : kept.tied) text += (text.empty() ? "" : ", ") + name;
    if (text.empty()) continue;
    line += (line.empty() ? "standby: node " : " | node ") +
            std::to_string(plan.devices[d].node.value) + ": " + text;
  }
  return line;
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
  const auto add = [&](std::string line, const std::vector<StageId>& stages) {
    line += ':';
    for (const StageId stage : stages)
      line += (line.back() == ':' ? " node " : " | node ") +
              std::to_string(plan.node_of(stage).value) + ": " + stage_text(plan, stage);
    lines.push_back(std::move(line));
  };
  for (std::size_t p = 0; p < plan.pipelines.size() && p < kPipelinesShown; ++p) {
    const auto& replicas = plan.pipelines[p].replicas;
    if (replicas.size() == plan.module_groups.size()) {
      add("pipeline " + std::to_string(p), plan.stages_of(PipelineId{p}));
      continue;
    }
    for (const ReplicaId replica : replicas)
      add("replica " + std::to_string(replica.value), plan.at(replica).stages);
  }
  if (plan.pipelines.size() > kPipelinesShown)
    lines.push_back("and " + std::to_string(plan.pipelines.size() - kPipelinesShown) +
                    " more pipelines; plan.json has them");
  if (const auto standby = standby_text(plan); !standby.empty()) lines.push_back(standby);
  return lines;
}

std::vector<std::string> standby_lines(const ParallelPlan& plan, Dtype dtype) {
  if (plan.standbys.empty()) return {};
  scheduler::PredictionOptions options;
  options.dtype = dtype;
  const auto bytes = scheduler::standby_state_bytes(plan, options);
  return {standby_text(plan),
          "standby holders keep " +
              scheduler::byte_text(std::accumulate(bytes.begin(), bytes.end(), 0.0)) +
              " more, gradients included"};
}

std::string host_text(const ParallelPlan& plan, Dtype dtype) {
  scheduler::PredictionOptions options;
  options.dtype = dtype;
  const auto states = scheduler::host_states(plan, options);
  scheduler::HostState most;
  for (const scheduler::HostState& state : states) {
    most.bytes = std::max(most.bytes, state.bytes);
    most.largest_bytes = std::max(most.largest_bytes, state.largest_bytes);
    most.parameters = std::max(most.parameters, state.parameters);
  }
  std::string text;
  if (most.bytes > 0)
    text = "moments in host memory: " + scheduler::byte_text(most.bytes) +
           " of the fullest device, " + scheduler::byte_text(most.largest_bytes) +
           " of them on it at a time";
  if (most.parameters == 0) return text;
  if (!text.empty()) text += "; ";
  return text + "parameters in host memory while the llm computes: " +
         scheduler::byte_text(most.parameters) + " of the fullest device";
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

void StageTimes::add_check(double check_ms) {
  ++plans_;
  if (check_ms > 0) ++checks_;
  check_ms_ += check_ms;
}

std::string StageTimes::check_line() const {
  const double mean_ms = checks_ > 0 ? check_ms_ / static_cast<double>(checks_) : 0;
  const double step_ms = step_.measured / static_cast<double>(steps_);
  char text[128];
  std::snprintf(text, sizeof text,
                "plans proven sound: %lld of %lld, %.2f ms each, %.2f %% of a step",
                static_cast<long long>(checks_), static_cast<long long>(plans_), mean_ms,
                step_ms > 0 ? 100 * mean_ms / step_ms : 0);
  if (checks_ == plans_) return text;
  return text +
         std::string(
             "; of the others none is known to be unsound: a check would have taken more than ") +
         std::to_string(static_cast<int>(100 * PlanGuard::kShareMax)) + " % of their steps";
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
  if (plans_ > 0) lines.push_back(check_line());
  return lines;
}

}  // namespace troupe::engine
