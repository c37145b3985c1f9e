// Where the stages of a candidate layout stand: groups of devices within nodes.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/layout/kind_cuts.hpp"
#include "scheduler/layout/layout_candidates.hpp"

namespace troupe::scheduler {

namespace {

using std::to_string;

/// Devices of each group of a pipeline.
std::vector<std::int32_t> group_widths(const LayoutCandidate& candidate,
                                       const PipelineShape& shape) {
  std::vector<std::int32_t> widths(at(shape.devices), 1);
  for (const Track& track : shape.tracks)
    for (std::int32_t s = 0; s < track.segments(); ++s) {
      const LayerId layer = candidate.weights->layers[track.layers[at(track.cuts[at(s)])]];
      auto& width = widths[at(track.first_device + s)];
      width = std::max(width, candidate.parallelisms[layer.module.index()].ranks());
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

CopyPlaces copy_places(const LayoutCandidate& candidate) {
  CopyPlaces places;
  const auto stages = [&](std::size_t copy) {
    return candidate.shapes[candidate.shape_of[copy]].devices;
  };
  const auto width = [&](const std::vector<ModuleId>& modules) {
    return candidate.parallelisms[modules.front().index()].ranks();
  };
  places.first_llm = candidate.shape_of.size() - at(candidate.numbers.back());
  std::size_t copy = 0;
  for (std::size_t g = 0; g < candidate.numbers.size(); ++g)
    for (std::int32_t r = 0; r < candidate.numbers[g]; ++r, ++copy) {
      places.first.push_back(places.groups);
      if (!candidate.colocated || copy >= places.first_llm) places.groups += stages(copy);
    }
  if (!candidate.colocated) return places;
  places.per_group = width(candidate.module_groups.back()) / width(candidate.module_groups.front());
  for (std::size_t c = places.first_llm; c < copy; ++c) places.first[c] *= places.per_group;
  copy = 0;
  for (std::size_t g = 0; g + 1 < candidate.numbers.size(); ++g) {
    const auto number = candidate.numbers[g];
    std::int32_t left = places.groups * places.per_group, before = 0;
    for (std::int32_t r = 0; r < number; ++r) left -= stages(copy + at(r));
    for (std::int32_t r = 0; r < number; ++r, ++copy) {
      places.first[copy] = before + left * r / number;
      before += stages(copy);
    }
  }
  return places;
}

namespace {

/// Encoders on parts of the groups that the llm takes.
Result<std::vector<DeviceGroup>> colocated_groups(const AutoLayoutRequest& request,
                                                  const LayoutCandidate& candidate) {
  const CopyPlaces places = copy_places(candidate);
  const auto llm_width = candidate.parallelisms[candidate.module_groups.back().front().index()];
  auto llm = allocate(request.cluster, std::vector(at(places.groups), llm_width.ranks()));
  if (!llm.ok()) return std::move(llm).error();
  const std::int32_t width = llm_width.ranks() / places.per_group;
  std::vector<DeviceGroup> groups;
  for (std::size_t copy = 0; copy < candidate.shape_of.size(); ++copy)
    for (std::int32_t s = 0; s < candidate.shapes[candidate.shape_of[copy]].devices; ++s) {
      DeviceGroup group = llm.value()[at(places.group_of(copy, s))];
      if (copy < places.first_llm) {
        group.first += places.place_of(copy, s) % places.per_group * width;
        group.count = width;
      }
      groups.push_back(group);
    }
  return groups;
}

}  // namespace

Result<std::vector<DeviceGroup>> device_groups(const AutoLayoutRequest& request,
                                               const LayoutCandidate& candidate) {
  if (candidate.colocated) return colocated_groups(request, candidate);
  std::vector<std::int32_t> widths;
  for (const auto shape : candidate.shape_of) {
    const auto own = group_widths(candidate, candidate.shapes[shape]);
    widths.insert(widths.end(), own.begin(), own.end());
  }
  return allocate(request.cluster, widths);
}

namespace {

/// The entries of a stage whose `node` counts groups of devices, on the devices of its group: one,
/// or one for each choice of degrees that its modules have.
std::vector<HandStage> on_devices(const ModelGraph& model, const LayoutCandidate& candidate,
                                  const std::vector<DeviceGroup>& groups, const HandStage& stage) {
  const DeviceGroup& group = groups[at(stage.node)];
  std::vector<HandStage> entries;
  for (const HandRun& run : stage.runs) {
    const Parallelism degrees = candidate.parallelisms[model.find(run.module).index()];
    if (entries.empty() || entries.back().tp != degrees.tp || entries.back().cp != degrees.cp) {
      HandStage& entry = entries.emplace_back();
      entry.node = group.node.value;
      entry.tp = degrees.tp;
      entry.cp = degrees.cp;
      if (degrees.ranks() == 1) {
        entry.device = group.first;
      } else {
        entry.devices.resize(at(degrees.ranks()));
        std::iota(entry.devices.begin(), entry.devices.end(), group.first);
      }
    }
    entries.back().runs.push_back(run);
  }
  return entries;
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
  PlacedCandidate placed;
  HandLayout& layout = placed.layout;
  std::int32_t count = 0;
  for (const auto index : candidate.shape_of) {
    const PipelineShape& shape = candidate.shapes[index];
    auto& stages = layout.pipelines.emplace_back();
    for (HandStage& stage : hand_stages(model, *candidate.weights, shape, count))
      for (const HandStage& part : cut_by_kinds(model, request.stage_kinds, std::move(stage)))
        for (HandStage& own : on_devices(model, candidate, groups.value(), part))
          stages.push_back(std::move(own));
    count += shape.devices;
  }
  if (!candidate.numbers.empty()) make_replicas(model, candidate, layout);
  auto plan = place_by_hand(model, layout, request.cluster, IdleDevices::left_out,
                            {request.fault_tolerance, request.prediction.dtype});
  if (!plan.ok()) return std::move(plan).error();
  placed.plan = std::move(plan).value();
  return placed;
}

}  // namespace troupe::scheduler
