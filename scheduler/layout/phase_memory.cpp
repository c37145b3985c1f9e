#include "scheduler/layout/phase_memory.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/simulate/memory_bounds.hpp"

namespace troupe::scheduler {

PhaseMemory::PhaseMemory(std::int32_t devices, double device_memory)
    : memory_(device_memory), devices_(at(devices)) {}

void PhaseMemory::add(std::int32_t device, bool is_encoder, double state_bytes,
                      double microbatch_bytes, double in_flight) {
  Device& own = devices_[at(device)];
  own.state_bytes += state_bytes;
  own.microbatch_bytes += microbatch_bytes;
  own.wanted_bytes += state_bytes + in_flight * microbatch_bytes;
  own.stages += 1;
  (is_encoder ? encoders_ : llm_).push_back({device, microbatch_bytes, in_flight});
}

double PhaseMemory::least_bytes() const {
  double most = 0;
  for (const Device& device : devices_)
    most = std::max(most, device.state_bytes + device.microbatch_bytes);
  return most;
}

double PhaseMemory::wanted_bytes() const {
  double most = 0;
  for (const Device& device : devices_) most = std::max(most, device.wanted_bytes);
  return most;
}

double PhaseMemory::kept(const Stage& stage) const {
  const Device& device = devices_[at(stage.device)];
  const double room = std::max(0.0, memory_ - device.state_bytes);
  return kept_microbatches(room, device.stages, stage.microbatch_bytes);
}

double PhaseMemory::windows(double microbatches) const {
  if (memory_ == 0 || encoders_.empty()) return 1;
  double width = std::numeric_limits<double>::infinity();
  for (const Stage& stage : encoders_) width = std::min(width, kept(stage));
  return std::max(1.0, std::ceil(microbatches / width));
}

double PhaseMemory::held_back() const {
  if (memory_ == 0) return 1;
  double most = 1;
  for (const Stage& stage : llm_) most = std::max(most, stage.in_flight / kept(stage));
  return most;
}

}  // namespace troupe::scheduler
