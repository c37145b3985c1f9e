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

/// Bytes of rows that come to the llm's stage for a microbatch, or of the gradients that come to an
/// encoder's: for the microbatch with least, and for that with most.
struct Crossing {
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
};

Crossing crossing_bytes(const ParallelPlan& plan, const RowFlow& flow, double element,
                        StageId stage, const std::vector<ModuleId>& modules,
                        const MicrobatchList& list) {
  Crossing crossing;
  for (const Microbatch& microbatch : list) {
    double elements = 0;
    for (const ModuleId id : modules) {
      const ModuleSpec& module = plan.model.at(id);
      const auto layers = static_cast<std::int32_t>(module.layers.size());
      for (const Part& part : microbatch.parts)
        for (const std::int32_t unit : part.samples)
          if (plan.is_llm(stage) || flow.wants_gradient(id, layers, unit))
            elements += static_cast<double>(flow.output(id, unit)) *
                        static_cast<double>(module.output_width);
    }
    const double bytes = elements * element / plan.at(stage).grid.cp;
    crossing = {std::min(crossing.least, bytes), std::max(crossing.most, bytes)};
  }
  return crossing;
}

/// What stages want of one device.
struct DeviceDemand {
  RoomDemand room;
  double waiting = 0;    ///< Rows for all microbatches of a step that the llm's stages train.
  double taken = 0;      ///< Of these, what each microbatch of the llm in flight has at least.
  double gradients = 0;  ///< For a microbatch of each encoder stage.

  /// Rows for a whole window are there before the llm begins, and gradients for it when the llm
  /// ends: as one goes the other comes, so that what is more counts with each of its microbatches.
  RoomDemand with_rows() const {
    RoomDemand demand = room;
    if (demand.encoder_microbatches == 0) return demand;
    demand.llm_bytes -= taken;
    demand.encoder_bytes += std::max(waiting / demand.encoder_microbatches, gradients);
    return demand;
  }
};

}  // namespace

std::vector<RoomDemand> room_demands(const ParallelPlan& plan, const RowFlow& flow,
                                     double bytes_per_element,
                                     const std::vector<LargestMicrobatch>& largest,
                                     const std::vector<MicrobatchList>& microbatches) {
  const auto depths = stage_depths(plan);
  const auto crossings = crossings_of(plan);
  std::vector<DeviceDemand> devices(plan.devices.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const MicrobatchList& list = microbatches[plan.stages[s].replica.index()];
    if (list.empty()) continue;
    const auto count = static_cast<double>(list.size());
    const Crossing rows =
        crossing_bytes(plan, flow, bytes_per_element, StageId{s}, crossings[s], list);
    for (const DeviceId device : plan.stages[s].devices) {
      auto& [demand, waiting, taken, gradients] = devices[device.index()];
      if (plan.is_llm(StageId{s})) {
        demand.llm_bytes += largest[s].bytes;
        demand.llm_microbatches = std::max(demand.llm_microbatches, count);
        demand.depth = std::max(demand.depth, std::min<double>(depths[s], count));
        waiting += rows.most * count;
        taken += rows.least;
      } else {
        demand.encoder_bytes += largest[s].bytes - largest[s].offloaded;
        demand.once_bytes += largest[s].offloaded;
        demand.encoder_microbatches = std::max(demand.encoder_microbatches, count);
        gradients += rows.most;
      }
    }
  }
  std::vector<RoomDemand> demands;
  for (const DeviceDemand& device : devices) demands.push_back(device.with_rows());
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
