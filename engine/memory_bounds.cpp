#include "engine/memory_bounds.hpp"

#include <algorithm>
#include <limits>

#include "scheduler/iteration_graph.hpp"

namespace troupe::engine {

namespace {

struct Room {
  double bytes = 0;  ///< What state leaves; not negative.
  double stages = 0;
};

Room room_beside(const ParallelPlan& plan, const scheduler::SimulationCosts& costs,
                 Bytes device_memory, StageId stage) {
  Room room{static_cast<double>(device_memory.count()), 0};
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (plan.stages[s].devices.front() != plan.at(stage).devices.front()) continue;
    room.bytes -= costs.state_bytes(StageId{s});
    room.stages += 1;
  }
  room.bytes = std::max(0.0, room.bytes);
  return room;
}

}  // namespace

std::optional<double> llm_cap_ms(const ParallelPlan& plan, const scheduler::SimulationCosts& costs,
                                 Bytes device_memory, PipelineId pipeline,
                                 const std::vector<std::int32_t>& samples, double llm_ms) {
  const auto depths = scheduler::stage_depths(plan);
  std::optional<double> cap;
  for (const StageId stage : plan.pipelines[pipeline.index()].stages) {
    if (side_of(plan, stage) != Side::llm) continue;
    const double bytes = costs.activation_bytes(stage, samples);
    if (!(bytes > 0)) continue;
    const double room = room_beside(plan, costs, device_memory, stage).bytes;
    const double own = room / depths[stage.index()] * llm_ms / bytes;
    cap = std::min(cap.value_or(own), own);
  }
  return cap;
}

std::vector<std::int32_t> memory_bounds(const ParallelPlan& plan,
                                        const scheduler::SimulationCosts& costs,
                                        Bytes device_memory,
                                        const std::vector<PipelineMicrobatches>& microbatches) {
  constexpr double kMany = 1 << 20;
  std::vector<std::int32_t> bounds;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StageId stage{s};
    double largest = 0;
    for (const auto& microbatch :
         microbatches[plan.at(stage).pipeline.index()].of(side_of(plan, stage))) {
      double bytes = 0;
      for (const auto& part : microbatch.parts)
        bytes += costs.activation_bytes(stage, part.samples);
      largest = std::max(largest, bytes);
    }
    const Room room = room_beside(plan, costs, device_memory, stage);
    const double fits = largest > 0 ? room.bytes / room.stages / largest : kMany;
    bounds.push_back(std::max(1, static_cast<std::int32_t>(std::min(fits, kMany))));
  }
  return bounds;
}

}  // namespace troupe::engine
