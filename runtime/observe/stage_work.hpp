// How busy stages were in one step, and the two figures that follow: bubble and imbalance.
//
// An executor condenses its events to a few values per step; whoever writes metrics combines those
// of all devices. Pure.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/observe/trace_event.hpp"

namespace troupe::observe {

/// The compute of one stage in one step on one device.
struct StageWork {
  StageId stage;
  DeviceId device;
  std::int64_t work_ns = 0;   ///< Sum over its compute actions; 0: it had nothing to do.
  std::int64_t begin_ns = 0;  ///< Begin of the first.
  std::int64_t end_ns = 0;    ///< End of the last.

  friend bool operator==(const StageWork&, const StageWork&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, StageWork& x) {
    return f(x.stage, x.device, x.work_ns, x.begin_ns, x.end_ns);
  }
};

/// Work per stage of these events, ascending by stage; other kinds of time are left out.
std::vector<StageWork> stage_work(std::span<const TraceEvent> events);

/// The balance of one step.
struct StepBalance {
  double bubble = 0;     ///< Idle share of the devices' time: 1 - work / (devices x span); [0, 1].
  double imbalance = 1;  ///< Largest over mean work of a stage; >= 1.
  double span_ms = 0;    ///< First begin to last end over all stages.

  friend bool operator==(const StepBalance&, const StepBalance&) = default;
};

/// Combines the stages of all devices. `device_count` counts devices that hold a stage, busy or
/// not; stages without work count in the mean. No work at all: bubble 0, imbalance 1.
StepBalance step_balance(std::span<const StageWork> stages, std::int32_t device_count);

/// Where a device's time went in one step, in milliseconds: the mean over devices. What is missing
/// to the step's own time, devices spent between two steps.
struct StepTimes {
  double compute_ms = 0;   ///< Forward and backward.
  double update_ms = 0;    ///< Summing gradients, and the optimizer.
  double transfer_ms = 0;  ///< Handing bytes over.
  double wait_ms = 0;      ///< For rows and gradients of other stages, and for COMMIT.
  double offload_ms = 0;   ///< Moving activations or moments to host memory and back.

  friend bool operator==(const StepTimes&, const StepTimes&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, StepTimes& x) {
    return f(x.compute_ms, x.update_ms, x.transfer_ms, x.wait_ms, x.offload_ms);
  }
};

/// The events of one step over `device_count` devices, busy or not. None of either: zeros.
StepTimes step_times(std::span<const TraceEvent> events, std::int32_t device_count);

}  // namespace troupe::observe
