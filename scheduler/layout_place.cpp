// Where the stages of a candidate layout stand: groups of devices within nodes.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "scheduler/layout_candidates.hpp"
#include "scheduler/standby_holders.hpp"

namespace troupe::scheduler {

namespace {

using std::to_string;

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

/// Devices of each group of a pipeline.
std::vector<std::int32_t> group_widths(const LayoutCandidate& candidate,
                                       const PipelineShape& shape) {
  std::vector<std::int32_t> widths(at(shape.devices), 1);
  for (const Track& track : shape.tracks)
    for (std::int32_t s = 0; s < track.segments(); ++s) {
      const LayerId layer = candidate.weights->layers[track.layers[at(track.cuts[at(s)])]];
      const auto degrees = candidate.parallelisms[layer.module.index()];
      widths[at(track.first_device + s)] = degrees.tp * degrees.cp;
    }
  return widths;
}

/// Gives out groups of consecutive devices of nodes: the widest first, so that powers of two leave
/// no holes.
Result<std::vector<DeviceGroup>> allocate(const ClusterShape& cluster,
                                          const std::vector<std::int32_t>& widths) {
  std::vector<std::size_t> order(widths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return widths[a] > widths[b]; });
  std::vector<std::int32_t> used(at(cluster.nodes));
  std::vector<DeviceGroup> groups(widths.size());
  std::int32_t node = 0, width = 0;
  for (const auto i : order) {
    if (widths[i] != width) node = 0, width = widths[i];
    while (node < cluster.nodes && used[at(node)] + width > cluster.devices_per_node) ++node;
    if (node == cluster.nodes)
      return Error{Errc::infeasible,
                   "groups of " + to_string(width) + " devices do not fit into nodes of " +
                       to_string(cluster.devices_per_node),
                   "cluster", "choose degrees that divide the devices of a node"};
    groups[i] = {NodeId{node}, used[at(node)], width};
    used[at(node)] += width;
  }
  return groups;
}

}  // namespace

Result<std::vector<DeviceGroup>> device_groups(const AutoLayoutRequest& request,
                                               const LayoutCandidate& candidate) {
  std::vector<std::int32_t> widths;
  for (const auto shape : candidate.shape_of) {
    const auto own = group_widths(candidate, candidate.shapes[shape]);
    widths.insert(widths.end(), own.begin(), own.end());
  }
  return allocate(request.cluster, widths);
}

namespace {

/// Gives devices that no stage takes the chance to keep what stages alone would lose.
Status add_standbys_to(const AutoLayoutRequest& request, PlacedCandidate& placed) {
  if (request.fault_tolerance == 0) return Done{};
  std::set<DeviceSlot> taken;
  for (const DeviceGroup& group : placed.groups)
    for (std::int32_t device = 0; device < group.count; ++device)
      taken.insert({group.node, group.first + device});
  for (std::int32_t node = 0; node < request.cluster.nodes; ++node)
    for (std::int32_t device = 0; device < request.cluster.devices_per_node; ++device)
      if (!taken.contains({NodeId{node}, device})) {
        placed.plan.devices.push_back({NodeId{node}, device});
        placed.groups.push_back({NodeId{node}, device, 1});
      }
  auto safe =
      add_standbys(std::move(placed.plan), {request.fault_tolerance, request.prediction.dtype});
  if (!safe.ok()) return std::move(safe).error();
  placed.plan = std::move(safe).value();
  const auto before = placed.plan.devices;
  leave_out_idle(placed.plan);
  std::vector<DeviceGroup> groups;
  for (std::size_t d = 0; d < before.size(); ++d)
    if (groups.size() < placed.plan.devices.size() &&
        before[d] == placed.plan.devices[groups.size()])
      groups.push_back(placed.groups[d]);
  placed.groups = std::move(groups);
  return Done{};
}

/// Turns tables of copies into replicas of the candidate's groups. Projectors go along unnamed.
void make_replicas(const ModelGraph& model, const LayoutCandidate& candidate, HandLayout& layout) {
  auto stages = layout.pipelines.begin();
  for (std::size_t g = 0; g < candidate.numbers.size(); ++g)
    for (std::int32_t r = 0; r < candidate.numbers[g]; ++r) {
      HandReplica& replica = layout.replicas.emplace_back();
      for (const ModuleId module : candidate.module_groups[g])
        if (model.at(module).kind != ModuleKind::projector)
          replica.modules.push_back(model.at(module).name);
      replica.stages = std::move(*stages++);
    }
  layout.pipelines.clear();
}

}  // namespace

Result<PlacedCandidate> place(const AutoLayoutRequest& request, const LayoutCandidate& candidate) {
  const ModelGraph& model = request.model->graph();
  auto groups = device_groups(request, candidate);
  if (!groups.ok()) return std::move(groups).error();
  HandLayout on_groups;
  std::int32_t count = 0;
  for (const auto index : candidate.shape_of) {
    const PipelineShape& shape = candidate.shapes[index];
    on_groups.pipelines.push_back(hand_stages(model, *candidate.weights, shape, count));
    count += shape.devices;
  }
  if (!candidate.numbers.empty()) make_replicas(model, candidate, on_groups);
  auto plan = place_by_hand(model, on_groups, {count, 1});
  if (!plan.ok()) return std::move(plan).error();
  PlacedCandidate placed{std::move(on_groups), std::move(plan).value(), std::move(groups).value()};
  for (std::size_t g = 0; g < placed.groups.size(); ++g)
    placed.plan.devices[g] = {placed.groups[g].node, placed.groups[g].first};
  const auto move_to_groups = [&](std::vector<HandStage>& stages) {
    for (auto& stage : stages) {
      const DeviceGroup& group = placed.groups[at(stage.node)];
      stage.node = group.node.value;
      stage.device = group.first;
    }
  };
  for (auto& pipeline : placed.layout.pipelines) move_to_groups(pipeline);
  for (auto& replica : placed.layout.replicas) move_to_groups(replica.stages);
  if (auto added = add_standbys_to(request, placed); !added.ok()) return std::move(added).error();
  return placed;
}

}  // namespace troupe::scheduler
