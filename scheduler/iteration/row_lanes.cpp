#include "scheduler/iteration/row_lanes.hpp"

#include <algorithm>

#include "scheduler/iteration/stage_graph.hpp"

namespace troupe::scheduler {

std::vector<RowLane> row_lanes(const ParallelPlan& plan) {
  std::vector<RowLane> lanes;
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p)
    for (const PlanEdge& edge : pipeline_edges(plan, PipelineId{p})) {
      const DeviceId from = plan.at(edge.from).devices.front();
      const DeviceId to = plan.at(edge.to).devices.front();
      if (from == to) continue;
      lanes.push_back({from, to});
      lanes.push_back({to, from});
    }
  std::ranges::sort(lanes);
  lanes.erase(std::ranges::unique(lanes).begin(), lanes.end());
  return lanes;
}

}  // namespace troupe::scheduler
