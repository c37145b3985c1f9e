#include "scheduler/layout/phase_memory.hpp"

#include <algorithm>

#include "runtime/vocabulary/index.hpp"

namespace troupe::scheduler {

PhaseMemory::PhaseMemory(std::int32_t devices, double device_memory)
    : memory_(device_memory), devices_(at(devices)) {}

void PhaseMemory::add(std::int32_t device, bool is_encoder, double state_bytes,
                      double microbatch_bytes, double in_flight) {
  Device& own = devices_[at(device)];
  own.state_bytes += state_bytes;
  own.wanted_bytes += state_bytes + in_flight * microbatch_bytes;
  RoomDemand& demand = own.demand;
  (is_encoder ? demand.encoder_bytes : demand.llm_bytes) += microbatch_bytes;
  if (!is_encoder) demand.depth = std::max(demand.depth, in_flight);
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
  for (const Device& device : devices_) most = std::max(most, device.wanted_bytes);
  return most;
}

PhaseMemory::Pace PhaseMemory::pace(double encoder_microbatches, double llm_microbatches) const {
  Pace slowest;
  if (memory_ == 0) return slowest;
  for (const Device& device : devices_) {
    RoomDemand demand = device.demand;
    demand.encoder_microbatches = encoder_microbatches;
    demand.llm_microbatches = llm_microbatches;
    const RoomDivision kept = divide_room(std::max(0.0, memory_ - device.state_bytes), demand);
    slowest.windows = std::max(slowest.windows, kept.windows);
    slowest.held_back = std::max(slowest.held_back, kept.held_back);
  }
  return slowest;
}

}  // namespace troupe::scheduler
