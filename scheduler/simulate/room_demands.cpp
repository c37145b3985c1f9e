#include "scheduler/simulate/room_demands.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/disjoint_sets.hpp"
#include "scheduler/iteration/iteration_graph.hpp"
#include "scheduler/iteration/phase_windows.hpp"
#include "scheduler/iteration/stage_graph.hpp"

namespace troupe::scheduler {

namespace {

/// Per stage: encoder modules whose rows come to it, of the llm, or leave it.
std::vector<std::vector<ModuleId>> crossings_of(const ParallelPlan& plan) {
  std::vector<std::vector<ModuleId>> crossings(plan.stages.size());
  for (std::size_t m = 0; m < plan.model.modules.size(); ++m)
    for (const ModuleId next : plan.model.modules[m].next) {
      const ModuleId module{m};
      if (plan.group_of(next) == plan.group_of(module)) continue;
      const auto layers = static_cast<std::int32_t>(plan.model.modules[m].layers.size());
      const LayerId entry{next, entry_layer(plan.model, module, next)}, last{module, layers - 1};
      for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
        const ReplicaId replica{r};
        const ModuleGroupId group = plan.replicas[r].group;
        if (group == plan.group_of(module))
          crossings[stage_with(plan, replica, last).index()].push_back(module);
        else if (group == plan.group_of(next) && plan.is_llm(replica))
          crossings[stage_with(plan, replica, entry).index()].push_back(module);
      }
    }
  return crossings;
}

}  // namespace

RowBytes crossing_bytes(const ModelGraph& model, const RowFlow& flow, double bytes_per_element,
                        const std::vector<ModuleId>& modules, Crossing crossing,
                        const MicrobatchList& list) {
  RowBytes bytes{std::numeric_limits<double>::infinity(), 0};
  for (const Microbatch& microbatch : list) {
    double elements = 0;
    for (const ModuleId id : modules) {
      const ModuleSpec& module = model.at(id);
      const auto layers = static_cast<std::int32_t>(module.layers.size());
      for (const Part& part : microbatch.parts)
        for (const std::int32_t unit : part.samples) {
          const bool goes_back = flow.wants_gradient(id, layers, unit);
          if (crossing == Crossing::gradients && !goes_back) continue;
          bytes.go_back = bytes.go_back || goes_back;
          elements +=
              static_cast<double>(flow.output(id, unit)) * static_cast<double>(module.output_width);
        }
    }
    bytes.least = std::min(bytes.least, elements * bytes_per_element);
    bytes.most = std::max(bytes.most, elements * bytes_per_element);
  }
  return bytes;
}

namespace {

/// Places in encoders' lists where a microbatch of the llm has something encoded.
struct EncodedPlaces {
  std::int32_t first = std::numeric_limits<std::int32_t>::max();
  std::int32_t last = -1;  ///< -1: nowhere.
};

/// Replicas that have a device in common.
DisjointSets sharing_replicas(const ParallelPlan& plan) {
  DisjointSets replicas(plan.replicas.size());
  std::vector<ReplicaId> first(plan.devices.size());
  for (const Stage& stage : plan.stages)
    for (const DeviceId device : stage.devices) {
      ReplicaId& own = first[device.index()];
      if (!own.valid()) own = stage.replica;
      replicas.join(own.index(), stage.replica.index());
    }
  return replicas;
}

/// Per sample that the llm trains: where.
std::vector<SamplePlace> trained_places(const ParallelPlan& plan, const SampleUnits& units,
                                        const std::vector<MicrobatchList>& microbatches) {
  std::vector<SamplePlace> places(units.whole());
  for (std::size_t r = 0; r < microbatches.size(); ++r) {
    if (!plan.is_llm(ReplicaId{r})) continue;
    for (std::size_t m = 0; m < microbatches[r].size(); ++m)
      for (const Part& part : microbatches[r][m].parts)
        for (const std::int32_t sample : part.samples)
          places[at(sample)] = {ReplicaId{r}, MicrobatchId{m}, PartId{}};
  }
  return places;
}

/// Per replica of the llm and microbatch. `replicas`: those that exchange rows are joined.
std::vector<std::vector<EncodedPlaces>> encoded_places(
    const ParallelPlan& plan, const RowFlow& flow, const SampleUnits& units,
    const std::vector<MicrobatchList>& microbatches, DisjointSets& replicas) {
  const auto trained = trained_places(plan, units, microbatches);
  std::vector<std::vector<EncodedPlaces>> encoded;
  for (const MicrobatchList& list : microbatches) encoded.emplace_back(list.size());
  for (std::size_t r = 0; r < microbatches.size(); ++r) {
    if (plan.is_llm(ReplicaId{r})) continue;
    const auto& modules = plan.module_groups[plan.replicas[r].group.index()].modules;
    for (std::size_t m = 0; m < microbatches[r].size(); ++m)
      for (const Part& part : microbatches[r][m].parts)
        for (const std::int32_t unit : part.samples) {
          const SamplePlace& place = trained[at(units.sample_of(unit))];
          const bool has_rows = std::ranges::any_of(
              modules, [&](ModuleId module) { return flow.output(module, unit) > 0; });
          if (!has_rows || !place.replica.valid()) continue;
          replicas.join(r, place.replica.index());
          auto& [first, last] = encoded[place.replica.index()][place.microbatch.index()];
          first = std::min(first, static_cast<std::int32_t>(m));
          last = std::max(last, static_cast<std::int32_t>(m));
        }
  }
  return encoded;
}

}  // namespace

std::vector<RoomDemand> room_demands(const ParallelPlan& plan, const RowFlow& flow,
                                     double bytes_per_element,
                                     const std::vector<LargestMicrobatch>& largest,
                                     const std::vector<MicrobatchList>& microbatches,
                                     const std::vector<WindowSet>& sets) {
  const auto depths = stage_depths(plan);
  const auto crossings = crossings_of(plan);
  std::vector<RoomDemand> demands(plan.devices.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const MicrobatchList& list = microbatches[plan.stages[s].replica.index()];
    if (list.empty()) continue;
    StageDemand stage;
    stage.is_llm = plan.is_llm(StageId{s});
    stage.microbatch_bytes = largest[s].bytes;
    stage.offloaded_bytes = stage.is_llm ? 0 : largest[s].offloaded;
    stage.rows =
        crossing_bytes(plan.model, flow, bytes_per_element / plan.stages[s].grid.cp, crossings[s],
                       stage.is_llm ? Crossing::rows : Crossing::gradients, list);
    stage.microbatches = static_cast<double>(list.size());
    stage.depth = depths[s];
    const WindowSet& set = sets[plan.stages[s].replica.index()];
    stage.encoded = set.encoded;
    stage.least_width = set.least_width;
    // A list may be shorter than one whose windows are its own too.
    if (!stage.is_llm) stage.least_width = std::min(stage.least_width, stage.microbatches);
    for (const DeviceId device : plan.stages[s].devices) demands[device.index()].add(stage);
  }
  return demands;
}

std::vector<WindowSet> window_sets(const ParallelPlan& plan, const RowFlow& flow,
                                   const SampleUnits& units,
                                   const std::vector<MicrobatchList>& microbatches) {
  DisjointSets replicas = sharing_replicas(plan);
  const auto encoded = encoded_places(plan, flow, units, microbatches, replicas);
  std::size_t longest = 1;
  for (const MicrobatchList& list : microbatches) longest = std::max(longest, list.size());
  // By the replica that stands for all that have windows in common.
  std::vector<WindowCuts> cuts(plan.replicas.size(),
                               WindowCuts(static_cast<std::int32_t>(longest)));
  for (std::size_t r = 0; r < encoded.size(); ++r) {
    std::int32_t last = 0;
    for (const EncodedPlaces& own : encoded[r]) {
      if (own.last < 0) continue;  // Text alone.
      last = std::max(last, own.last);
      cuts[replicas.root(r)].join(own.first, last);
    }
  }
  std::vector<std::int32_t> longest_list(plan.replicas.size());  // Of encoders, as `cuts`.
  for (std::size_t r = 0; r < microbatches.size(); ++r) {
    auto& most = longest_list[replicas.root(r)];
    if (!plan.is_llm(ReplicaId{r}))
      most = std::max(most, static_cast<std::int32_t>(microbatches[r].size()));
  }
  std::vector<WindowSet> sets;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    const std::size_t root = replicas.root(r);
    sets.push_back({root, cuts[root].least_width(), longest_list[root]});
  }
  return sets;
}

}  // namespace troupe::scheduler
