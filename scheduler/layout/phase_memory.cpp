#include "scheduler/layout/phase_memory.hpp"

#include <algorithm>

#include "runtime/vocabulary/index.hpp"

namespace troupe::scheduler {

namespace {

/// Whether a stage that ends before layer `end` of a track ends a run with layer `l`.
bool ends_run(const Track& track, const LayerWeights& weights, std::int32_t l, std::int32_t end) {
  const auto module_of = [&](std::int32_t layer) {
    return weights.layers[track.layers[at(layer)]].module;
  };
  return l + 1 == end || module_of(l + 1) != module_of(l);
}

}  // namespace

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
      if (!weights.leaving_bytes.empty()) stage.leaving_bytes += weights.leaving_bytes[layer];
      demand.is_llm = is_llm;
      demand.depth = track.segments() - s;
      demand.microbatch_bytes += weights.activation_bytes[layer];
      if (begins) demand.microbatch_bytes += weights.arriving_bytes[layer];
      if (is_llm) demand.microbatch_bytes += rows.most;
      if (!is_llm && !weights.staying_bytes.empty()) {
        demand.offloaded_bytes += weights.activation_bytes[layer];
        if (ends_run(track, weights, l, track.cuts[at(s) + 1]))
          demand.offloaded_bytes -= weights.staying_bytes[layer];
      }
      demand.rows.least += rows.least;
      demand.rows.most += rows.most;
      demand.rows.go_back = demand.rows.go_back || rows.go_back;
    }
  for (PhaseStage& stage : stages)
    stage.demand.offloaded_bytes = std::max(0.0, stage.demand.offloaded_bytes);
  return stages;
}

PhaseMemory::PhaseMemory(std::int32_t devices, double device_memory)
    : memory_(device_memory), devices_(at(devices)) {}

void PhaseMemory::add(std::int32_t device, const PhaseStage& stage, double microbatches,
                      double encoded) {
  Device& own = devices_[at(device)];
  own.state_bytes += stage.state_bytes;
  own.offloaded_bytes = std::max(own.offloaded_bytes, stage.demand.offloaded_bytes);
  own.demand.leaving_bytes += stage.leaving_bytes;
  StageDemand demand = stage.demand;
  demand.microbatches = microbatches;
  demand.encoded = encoded;
  own.demand.add(demand);
}

double PhaseMemory::least_bytes() const {
  double most = 0;
  for (const Device& device : devices_) {
    const RoomDemand& demand = device.demand;
    const double in_turn =
        std::max(device.offloaded_bytes, demand.llm_bytes - demand.leaving_bytes);
    most = std::max(most, device.state_bytes + demand.encoder_bytes + in_turn);
  }
  return most;
}

double PhaseMemory::wanted_bytes() const {
  double most = 0;
  for (const Device& device : devices_) {
    const RoomDemand demand = device.demand.with_rows();
    const double beside_llm = std::max(0.0, demand.depth * demand.llm_bytes - demand.leaving_bytes);
    most =
        std::max(most, device.state_bytes + demand.once_bytes + demand.encoder_bytes + beside_llm);
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
