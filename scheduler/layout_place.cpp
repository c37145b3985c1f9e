// Where the stages of a candidate layout stand: groups of devices within nodes.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include "scheduler/layout_candidates.hpp"

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

/// Gives out groups of consecutive devices of nodes from `first` on: the widest first, so that
/// powers of two leave no holes.
Result<std::vector<DeviceGroup>> allocate(std::int32_t first, const ClusterShape& cluster,
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
    groups[i] = {NodeId{first + node}, used[at(node)], width};
    used[at(node)] += width;
  }
  return groups;
}

}  // namespace

Result<std::vector<DeviceGroup>> device_groups(const AutoLayoutRequest& request,
                                               const LayoutCandidate& candidate) {
  const bool apart = request.fault_tolerance > 0;
  const std::int32_t nodes = request.cluster.nodes, pipelines = candidate.pipelines();
  std::vector<DeviceGroup> groups;
  std::vector<std::int32_t> widths;
  std::int32_t first = 0;
  for (std::int32_t p = 0; p < pipelines; ++p) {
    const auto own = group_widths(candidate, candidate.shapes[candidate.shape_of[at(p)]]);
    widths.insert(widths.end(), own.begin(), own.end());
    if (!apart && p + 1 < pipelines) continue;
    const std::int32_t count = apart ? nodes / pipelines + (p < nodes % pipelines ? 1 : 0) : nodes;
    auto made = allocate(first, {count, request.cluster.devices_per_node}, widths);
    if (!made.ok()) return made;
    groups.insert(groups.end(), made.value().begin(), made.value().end());
    widths.clear();
    first += count;
  }
  return groups;
}

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
  auto plan = place_by_hand(model, on_groups, {count, 1});
  if (!plan.ok()) return std::move(plan).error();
  PlacedCandidate placed{std::move(on_groups), std::move(plan).value(), std::move(groups).value()};
  for (std::size_t g = 0; g < placed.groups.size(); ++g)
    placed.plan.devices[g] = {placed.groups[g].node, placed.groups[g].first};
  for (auto& pipeline : placed.layout.pipelines)
    for (auto& stage : pipeline) {
      const DeviceGroup& group = placed.groups[at(stage.node)];
      stage.node = group.node.value;
      stage.device = group.first;
    }
  return placed;
}

}  // namespace troupe::scheduler
