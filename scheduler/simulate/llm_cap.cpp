#include "scheduler/simulate/llm_cap.hpp"

#include <algorithm>
#include <cstddef>
#include <map>

#include "scheduler/iteration/iteration_graph.hpp"
#include "scheduler/simulate/memory_bounds.hpp"

namespace troupe::scheduler {

namespace {

/// Per device: whether it has a stage of the llm.
std::vector<bool> devices_of_llm(const ParallelPlan& plan) {
  std::vector<bool> has_llm(plan.devices.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (plan.is_llm(StageId{s}))
      for (const DeviceId device : plan.stages[s].devices) has_llm[device.index()] = true;
  return has_llm;
}

}  // namespace

std::vector<double> kept_by_encoders(const ParallelPlan& plan, const SimulationCosts& costs,
                                     const std::vector<std::vector<std::int32_t>>& pipelines,
                                     std::int64_t microbatches) {
  const auto has_llm = devices_of_llm(plan);
  std::vector<double> kept(plan.stages.size());
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    const PipelineId pipeline{p};
    const bool is_whole = plan.at(pipeline).replicas.size() == plan.module_groups.size();
    if (!is_whole || pipelines[p].empty()) continue;
    for (const StageId stage : plan.stages_of(pipeline)) {
      const bool is_beside = std::ranges::any_of(
          plan.at(stage).devices, [&](DeviceId device) { return has_llm[device.index()]; });
      if (plan.is_llm(stage) || !is_beside) continue;
      double all = costs.activation_bytes(stage, pipelines[p]);
      if (costs.offloaded_bytes) all -= costs.offloaded_bytes(stage, pipelines[p]);
      kept[stage.index()] = all / static_cast<double>(microbatches);
    }
  }
  return kept;
}

std::vector<double> rooms_in_flight(const ParallelPlan& plan, const SimulationCosts& costs,
                                    Bytes device_memory, const std::vector<double>& encoders_keep) {
  return rooms_in_flight(plan, microbatch_rooms(plan, costs, device_memory), encoders_keep);
}

std::vector<double> rooms_in_flight(const ParallelPlan& plan, std::vector<double> rooms,
                                    const std::vector<double>& encoders_keep) {
  const auto depths = stage_depths(plan);
  std::vector<double> taken(plan.devices.size());
  for (std::size_t s = 0; s < encoders_keep.size(); ++s)
    for (const DeviceId device : plan.stages[s].devices) taken[device.index()] += encoders_keep[s];
  for (std::size_t s = 0; s < rooms.size(); ++s) {
    double beside = 0;
    if (plan.is_llm(StageId{s}))
      for (const DeviceId device : plan.stages[s].devices)
        beside = std::max(beside, taken[device.index()]);
    rooms[s] = std::max(0.0, rooms[s] - beside) / depths[s];
  }
  return rooms;
}

std::optional<double> llm_cap_ms(const ParallelPlan& plan, const SimulationCosts& costs,
                                 std::span<const double> rooms, ReplicaId replica,
                                 const std::vector<std::int32_t>& samples, double llm_ms) {
  // Of a device's room, what all samples at once would take.
  std::map<DeviceId, double> taken;
  for (const StageId stage : plan.at(replica).stages) {
    const double bytes = costs.activation_bytes(stage, samples);
    if (!(bytes > 0)) continue;
    const double room = rooms[stage.index()];
    if (!(room > 0)) return 0.0;
    for (const DeviceId device : plan.at(stage).devices) taken[device] += bytes / room;
  }
  if (taken.empty()) return std::nullopt;
  double most = 0;
  for (const auto& [device, times] : taken) most = std::max(most, times);
  return llm_ms / most;
}

}  // namespace troupe::scheduler
