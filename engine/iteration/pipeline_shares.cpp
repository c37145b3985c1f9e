#include "engine/iteration/pipeline_shares.hpp"

#include <algorithm>
#include <map>

namespace troupe::engine {

namespace {

/// Per pipeline the time of its busiest device, by all stages or by those of the llm alone.
std::vector<double> busiest_ms(const ParallelPlan& plan, const std::vector<double>& stage_ms,
                               bool llm, const NodeTimes& times = {}) {
  std::map<DeviceId, double> busy_ms;
  const auto counts = [&](std::size_t s) { return !llm || plan.is_llm(StageId{s}); };
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const DeviceId device : plan.stages[s].devices)
      if (counts(s))
        busy_ms[device] += times_of(times, plan.devices[device.index()].node) * stage_ms[s];
  std::vector<double> busiest(plan.pipelines.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    double& own = busiest[plan.pipeline_of(StageId{s}).index()];
    for (const DeviceId device : plan.stages[s].devices)
      if (counts(s)) own = std::max(own, busy_ms[device]);
  }
  return busiest;
}

}  // namespace

std::vector<PipelineSpeeds::Share> shares_of(const ParallelPlan& plan,
                                             const Prediction& prediction) {
  std::vector<PipelineSpeeds::Share> shares(plan.pipelines.size());
  if (prediction.planned_stage_ms.empty()) return shares;
  const auto all_ms = busiest_ms(plan, prediction.planned_stage_ms, false),
             llm_ms = busiest_ms(plan, prediction.planned_stage_ms, true);
  for (std::size_t p = 0; p < shares.size(); ++p) {
    const auto& work = prediction.work[p];
    shares[p].llm_work_ms = work.llm_ms;
    shares[p].llm_busy_ms = llm_ms[p];
    if (prediction.exchanged) continue;
    shares[p].work_ms = work.encoder_ms + work.llm_ms;
    shares[p].busy_ms = all_ms[p];
  }
  return shares;
}

std::vector<double> times_of_pipelines(const ParallelPlan& plan, std::vector<double> stage_ms,
                                       const NodeTimes& times, bool llm) {
  stage_ms.resize(plan.stages.size());
  // Stages of which nothing is known count as alike, and as nothing beside others.
  constexpr double kLeastMs = 1e-9;
  for (double& ms : stage_ms) ms = std::max(ms, kLeastMs);
  auto found = busiest_ms(plan, stage_ms, llm, times);
  const auto usual = busiest_ms(plan, stage_ms, llm);
  for (std::size_t p = 0; p < found.size(); ++p) found[p] /= usual[p];
  return found;
}

}  // namespace troupe::engine
