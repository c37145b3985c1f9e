#include "engine/pipeline_shares.hpp"

#include <algorithm>
#include <map>

namespace troupe::engine {

std::vector<Dealing::Share> shares_of(const ParallelPlan& plan, const Prediction& prediction) {
  std::vector<Dealing::Share> shares(plan.pipelines.size());
  if (prediction.planned_stage_ms.empty()) return shares;
  std::map<DeviceId, double> busy_ms;
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    busy_ms[plan.stages[s].devices.front()] += prediction.planned_stage_ms[s];
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    double& busiest = shares[plan.pipeline_of(StageId{s}).index()].busy_ms;
    busiest = std::max(busiest, busy_ms[plan.stages[s].devices.front()]);
  }
  for (std::size_t p = 0; p < shares.size(); ++p) shares[p].work_ms = prediction.work_ms[p];
  return shares;
}

}  // namespace troupe::engine
