// The layout of a running job on other nodes, as far as its newest batch tells: one that comes up
// and cannot train ends the job, where it could have waited for nodes. A part of the supervisor's
// actor; every function runs in it.

#pragma once

#include <set>

#include "actors/supervisor/supervisor_actor.hpp"
#include "runtime/vocabulary/model_state.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/recovery/next_layout.hpp"

namespace troupe::actors {

/// Whether a layout has room for the newest batch (`engine::check_batch_memory`), or for the next
/// one where that has no plan on the layout that is up.
/// Errors: infeasible: it has none, or that batch had no plan on it either.
Status check_room(const SupervisorState& state, const ParallelPlan& plan);

/// `scheduler::next_layout`, where state lies as `left`, of those that have room (`check_room`).
/// Looks at the chosen one alone, and at the others where that has none.
///
/// Errors: as `scheduler::next_layout`; infeasible: no other has room either.
Result<scheduler::NextLayout> next_layout_of(const SupervisorState& state,
                                             const StatePlacement& left,
                                             const std::set<NodeId>& nodes);

}  // namespace troupe::actors
