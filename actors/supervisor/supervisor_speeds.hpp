// What the supervisor does about nodes that slow down. A part of its actor.

#pragma once

#include "actors/head/recorder_actor.hpp"
#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Looks at what the nodes took for a finished step. One that has long been under half its usual
/// speed is named, in the log and in events.jsonl, and with `recovery.drain_slow` leaves.
void watch_speeds(SupervisorSelf self, const StepRecord& record);

}  // namespace troupe::actors
