// How a layout comes up: from nothing at the start of a job, later from the one before. A part of
// the supervisor's actor; every function runs in it.

#pragma once

#include "actors/supervisor/layout_change.hpp"
#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// The first layout, once every node is there: connects everybody and begins from the seed.
void begin_job(SupervisorSelf self);

/// Whether the next step that is planned belongs to another layout than the present one.
bool change_is_due(const SupervisorState& state);

/// Between two steps: brings up the layout that the job file asks for here, where there is room for
/// it beside the present one. Returns whether it is on its way; else a warning says why not.
bool change_layout(SupervisorSelf self);

/// How the state that is left gets to where `plan` wants it. Errors: as `plan_state_moves`.
Result<LayoutChange> plan_change(const SupervisorState& state, const ParallelPlan& plan,
                                 const StatePlacement& left);

/// What the network between nodes carries, as the profile says; 0: that is not known.
double network_bytes_per_ms(const SupervisorState& state);

/// For how long all would wait for the state to move: what the busiest device sends or receives.
/// REQUIRES: the network is known.
double copy_ms(const SupervisorState& state, const LayoutChange& change);

/// `plan_change` to a layout that fits into memory beside the present one.
/// Errors: as above; infeasible: no room, or a node of it is not there.
Result<LayoutChange> plan_fitting_change(const SupervisorState& state, const ParallelPlan& plan);

/// Between two steps: changes to a layout that was asked for. What it takes when nodes are lost or
/// join is worked out anew.
void take_up(SupervisorSelf self, const ParallelPlan& plan, LayoutChange change);

/// Tells all nodes to bring a layout up, as a new generation. What they have under way is given up.
void bring_up(SupervisorSelf self, const ParallelPlan& plan, LayoutChange change);

/// A node has the state that the new layout gives it; connecting to its peers took so long before.
/// When all have, all turn over to it: until then nobody has lost anything.
void node_fetched(SupervisorSelf self, NodeId id, EpochNumber epoch_number, double connect_ms);

/// A node works in the new layout. Returns whether all do.
bool node_applied(SupervisorSelf self, NodeId id, EpochNumber epoch_number);

}  // namespace troupe::actors
