// Moves between devices and host memory in a simulated iteration: how long they take, and what they
// leave where.
//
// Single owner; used by one simulation.

#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "scheduler/simulate/device_memory.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::scheduler {

class HostMoves {
 public:
  /// All outlive it.
  HostMoves(const ParallelPlan& plan, const IterationPlan& iteration, const SimulationCosts& costs)
      : plan_(plan), iteration_(iteration), costs_(costs) {}

  /// Of an action in a device's list, in milliseconds. REQUIRES: it moves memory.
  double duration_ms(DeviceId device, const Action& action) const;

  /// It took place in this time. REQUIRES: as above.
  void account(DeviceId device, const Action& action, double begin_ms, double end_ms,
               DeviceMemory& memory);

 private:
  double bytes_of(const Action& action) const;
  StageParameters parameters_of(StageId stage) const;

  const ParallelPlan& plan_;
  const IterationPlan& iteration_;
  const SimulationCosts& costs_;
  std::set<std::pair<DeviceId, StageId>> evicted_;  ///< Whose parameters have left in this step.
};

}  // namespace troupe::scheduler
