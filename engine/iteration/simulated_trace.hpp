// A simulated step as the events that an executor would have recorded, so that what was predicted
// is written, drawn and compared like what was measured.
//
// Pure.

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/observe/trace_event.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::engine {

/// One event per simulated event, in their order. As in a measured trace, waiting belongs to the
/// action that waits: it begins where the device's last one ended. Rows count `element_bytes` per
/// element. Events of actions that `iteration` does not have are left out.
/// REQUIRES: `step` was simulated from `iteration` with `record_timeline`.
std::vector<observe::TraceEvent> simulated_trace(const IterationPlan& iteration,
                                                 const scheduler::SimulatedStep& step,
                                                 std::int64_t element_bytes);

}  // namespace troupe::engine
