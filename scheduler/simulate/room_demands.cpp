#include "scheduler/simulate/room_demands.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/iteration_graph.hpp"
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
        for (const std::int32_t unit : part.samples)
          if (crossing == Crossing::rows || flow.wants_gradient(id, layers, unit))
            elements += static_cast<double>(flow.output(id, unit)) *
                        static_cast<double>(module.output_width);
    }
    bytes.least = std::min(bytes.least, elements * bytes_per_element);
    bytes.most = std::max(bytes.most, elements * bytes_per_element);
  }
  return bytes;
}

std::vector<RoomDemand> room_demands(const ParallelPlan& plan, const RowFlow& flow,
                                     double bytes_per_element,
                                     const std::vector<LargestMicrobatch>& largest,
                                     const std::vector<MicrobatchList>& microbatches) {
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
    for (const DeviceId device : plan.stages[s].devices) demands[device.index()].add(stage);
  }
  return demands;
}

bool keep_windows_apart(const ParallelPlan& plan, const std::vector<MicrobatchList>& microbatches) {
  constexpr std::int32_t kNone = -1;
  std::vector<std::vector<std::int32_t>> places(microbatches.size());  // By microbatch of the llm.
  std::vector<std::int32_t*> place_of;                                 // By sample.
  const auto visit = [&](bool llm, const auto& see) {
    for (std::size_t r = 0; r < microbatches.size(); ++r) {
      if (plan.is_llm(ReplicaId{r}) != llm) continue;
      for (std::size_t m = 0; m < microbatches[r].size(); ++m)
        for (const Part& part : microbatches[r][m].parts)
          for (const std::int32_t sample : part.samples) see(r, m, at(sample));
    }
  };
  for (std::size_t r = 0; r < microbatches.size(); ++r)
    places[r].assign(microbatches[r].size(), kNone);
  visit(true, [&](std::size_t r, std::size_t m, std::size_t sample) {
    if (place_of.size() <= sample) place_of.resize(sample + 1);
    place_of[sample] = &places[r][m];
  });
  bool apart = true;
  visit(false, [&](std::size_t, std::size_t m, std::size_t sample) {
    // Pieces of a sample are of no microbatch of the llm by their own number.
    std::int32_t* place = sample < place_of.size() ? place_of[sample] : nullptr;
    const auto here = static_cast<std::int32_t>(m);
    apart = apart && place && (*place == kNone || *place == here);
    if (apart) *place = here;
  });
  for (auto& own : places) {
    std::erase(own, kNone);  // Text alone.
    apart = apart && std::ranges::is_sorted(own);
  }
  return apart;
}

}  // namespace troupe::scheduler
