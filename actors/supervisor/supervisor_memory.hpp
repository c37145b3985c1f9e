// What a head has learned, put down for another one that takes over from it. A part of the
// supervisor's actor; every function runs in it.

#pragma once

#include <cstdint>

#include "actors/supervisor/supervisor_actor.hpp"
#include "runtime/vocabulary/head_memory.hpp"
#include "runtime/vocabulary/learned_costs.hpp"

namespace troupe::actors {

/// In the place of a save's number, which count from 1: what the scheduler has learned is for
/// another head.
inline constexpr std::int64_t kForNextHead = 0;

/// Changes of nodes until the last step that ended, also under the heads before.
NodeChanges node_changes(const SupervisorState& state);

/// Until nodes change again, expected by those (`scheduler::expected_quiet_ms`).
double quiet_ms(const SupervisorState& state);

/// A step has ended: asks the scheduler what it has learned, where another head may come for the
/// job's nodes, and other nodes are slow than last time or a while has passed.
void remember(SupervisorSelf self);

/// The scheduler's answer: it and who is slow are written with the next step that ends.
void learned_for_next_head(SupervisorSelf self, const LearnedCosts& learned);

}  // namespace troupe::actors
