#include "app/standby_text.hpp"

#include <algorithm>
#include <iostream>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "app/planning_text.hpp"
#include "app/text_table.hpp"
#include "runtime/observe/plan_words.hpp"
#include "scheduler/simulate/predicted_costs.hpp"
#include "scheduler/state/standby_holders.hpp"

namespace troupe::app {

namespace {

/// A node of the layout and what it keeps without a stage.
struct StandbyNode {
  std::vector<LayerRun> runs;
  std::vector<std::string> tied;
  double bytes = 0;         ///< Of these.
  double memory_bytes = 0;  ///< Of all its devices at their peaks.
  double limit_bytes = 0;
};

/// Runs of several devices in model order, those that touch as one.
void join_runs(std::vector<LayerRun>& runs) {
  std::sort(runs.begin(), runs.end());
  std::vector<LayerRun> joined;
  for (const LayerRun& run : runs)
    if (!joined.empty() && joined.back().module == run.module &&
        joined.back().layers.end == run.layers.begin)
      joined.back().layers.end = run.layers.end;
    else
      joined.push_back(run);
  runs = std::move(joined);
}

std::map<NodeId, StandbyNode> nodes_of(const Planning& planning,
                                       const scheduler::AutoLayout& layout) {
  const auto bytes = scheduler::standby_state_bytes(layout.plan, planning.request.prediction);
  std::map<NodeId, StandbyNode> nodes;
  for (std::size_t d = 0; d < layout.plan.devices.size(); ++d) {
    StandbyNode& node = nodes[layout.plan.devices[d].node];
    auto kept = scheduler::standby_runs(layout.plan, DeviceId{d});
    node.runs.insert(node.runs.end(), kept.runs.begin(), kept.runs.end());
    node.tied.insert(node.tied.end(), kept.tied.begin(), kept.tied.end());
    node.bytes += bytes[d];
    node.memory_bytes += layout.predicted.peak_memory_bytes[d];
  }
  for (auto& [id, node] : nodes) join_runs(node.runs);
  const double limit_bytes = static_cast<double>(planning.request.device_memory.count()) *
                             planning.request.cluster.devices_per_node;
  for (auto& [id, node] : nodes) node.limit_bytes = limit_bytes;
  return nodes;
}

/// On how many nodes at least everything is.
std::size_t copies_of(const ParallelPlan& plan) {
  std::size_t fewest = plan.nodes().size();
  for (const auto& holders : scheduler::unit_holders(plan)) {
    std::set<NodeId> nodes;
    for (const DeviceId device : holders) nodes.insert(plan.devices[device.index()].node);
    fewest = std::min(fewest, nodes.size());
  }
  return fewest;
}

double sum_of_bytes(const std::map<NodeId, StandbyNode>& nodes) {
  return std::accumulate(nodes.begin(), nodes.end(), 0.0,
                         [](double sum, const auto& entry) { return sum + entry.second.bytes; });
}

}  // namespace

void print_standbys(const Planning& planning, const scheduler::AutoLayout& layout) {
  constexpr std::size_t kShown = 40;
  const std::int64_t promised = planning.request.fault_tolerance;
  if (layout.plan.standbys.empty()) {
    if (promised > 0)
      std::cout << "\nstandby holders keep " << size_text(0)
                << " more: replicas have everything on " << copies_of(layout.plan)
                << " nodes, so that " << promised << " may be lost (cluster.fault_tolerance)\n";
    return;
  }
  const auto nodes = nodes_of(planning, layout);
  std::vector<std::vector<std::string>> rows{
      {"node", "on standby for", "bytes", "memory", "limit"}};
  for (const auto& [id, node] : nodes) {
    if (node.bytes == 0 || rows.size() > kShown) continue;
    Stage shown;
    shown.runs = node.runs;
    std::string kept = observe::stage_words(layout.plan, shown);
    for (const std::string& name : node.tied) kept += (kept.empty() ? "" : ", ") + name;
    rows.push_back({std::to_string(id.value), kept, size_text(node.bytes),
                    size_text(node.memory_bytes),
                    node.limit_bytes > 0 ? size_text(node.limit_bytes) : "-"});
  }
  std::cout << "\nstandby holders keep " << size_text(sum_of_bytes(nodes))
            << " more, so that everything is on " << copies_of(layout.plan)
            << " nodes (memory: of the whole node):\n";
  print_table(std::move(rows), {1}, 1);
}

Json standbys_json(const Planning& planning, const scheduler::AutoLayout& layout) {
  const auto nodes = nodes_of(planning, layout);
  Json list = Json::array();
  for (const auto& [id, node] : nodes) {
    Stage shown;
    shown.runs = node.runs;
    list.push_back({{"node", id.value},
                    {"runs", runs_json(layout.plan, shown)},
                    {"tied", node.tied},
                    {"bytes", node.bytes},
                    {"memory_bytes", node.memory_bytes}});
  }
  return {{"fault_tolerance", planning.request.fault_tolerance},
          {"copies", copies_of(layout.plan)},
          {"bytes", sum_of_bytes(nodes)},
          {"nodes", std::move(list)}};
}

}  // namespace troupe::app
