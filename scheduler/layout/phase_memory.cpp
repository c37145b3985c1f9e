#include "scheduler/layout/phase_memory.hpp"

#include <algorithm>

#include "runtime/vocabulary/index.hpp"

namespace troupe::scheduler {

std::vector<PhaseStage> phase_stages(const Track& track, const LayerWeights& weights,
                                     ModuleId llm) {
  std::vector<PhaseStage> stages;
  for (std::int32_t s = 0; s < track.segments(); ++s)
    for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l) {
      const auto layer = track.layers[at(l)];
      const bool is_llm = weights.layers[layer].module == llm;
      const bool begins =
          stages.empty() || stages.back().segment != s || stages.back().demand.is_llm != is_llm;
      if (begins) stages.emplace_back().segment = s;
      PhaseStage& stage = stages.back();
      StageDemand& demand = stage.demand;
      const RowBytes& rows = weights.crossing_bytes[layer];
      stage.state_bytes += weights.state_bytes[layer];
      demand.is_llm = is_llm;
      demand.depth = track.segments() - s;
      demand.microbatch_bytes += weights.activation_bytes[layer];
      if (begins) demand.microbatch_bytes += weights.arriving_bytes[layer];
      if (is_llm) demand.microbatch_bytes += rows.most;
      demand.rows.least += rows.least;
      demand.rows.most += rows.most;
      demand.rows.go_back = demand.rows.go_back || rows.go_back;
    }
  return stages;
}

PhaseMemory::PhaseMemory(std::int32_t devices, double device_memory)
    : memory_(device_memory), devices_(at(devices)) {}

void PhaseMemory::add(std::int32_t device, const PhaseStage& stage, double microbatches,
                      double encoded) {
  Device& own = devices_[at(device)];
  own.state_bytes += stage.state_bytes;
  StageDemand demand = stage.demand;
  demand.microbatches = microbatches;
  demand.encoded = encoded;
  own.demand.add(demand);
}

double PhaseMemory::least_bytes() const {
  double most = 0;
  for (const Device& device : devices_)
    most =
        std::max(most, device.state_bytes + device.demand.encoder_bytes + device.demand.llm_bytes);
  return most;
}

double PhaseMemory::wanted_bytes() const {
  double most = 0;
  for (const Device& device : devices_) {
    const RoomDemand demand = device.demand.with_rows();
    most = std::max(most, device.state_bytes + demand.once_bytes + demand.encoder_bytes +
                              demand.depth * demand.llm_bytes);
  }
  return most;
}

PhaseMemory::Pace PhaseMemory::pace() const {
  Pace slowest;
  if (memory_ == 0) return slowest;
  for (const Device& device : devices_) {
    const RoomDivision kept =
        divide_room(std::max(0.0, memory_ - device.state_bytes), device.demand);
    slowest.windows = std::max(slowest.windows, kept.windows);
    slowest.held_back = std::max(slowest.held_back, kept.held_back);
  }
  return slowest;
}

}  // namespace troupe::scheduler
