// Which layout a job takes up when the nodes there are change, and how it tells of it: the common
// part of losses (supervisor_recovery.hpp), joins and leaves (supervisor_members.hpp). A part of
// the supervisor's actor; every function runs in it.

#pragma once

#include <set>
#include <string>
#include <vector>

#include "actors/supervisor/layout_change.hpp"
#include "actors/supervisor/supervisor_actor.hpp"
#include "engine/state/state_memory.hpp"
#include "runtime/observe/step_metrics.hpp"
#include "runtime/vocabulary/model_state.hpp"
#include "scheduler/recovery/next_layout.hpp"

namespace troupe::actors {

/// `node 2`, `nodes 0, 1 and 4`.
std::string who_text(const std::vector<NodeId>& nodes);

/// Whether somebody holds each shard of the model. Errors: infeasible: names what nobody does, and
/// all layers that lack it.
Status check_holders(const SupervisorState& state, const StatePlacement& left);

/// Makes templates for the layout that trains where there are none yet: the scheduler sends them
/// behind the first batch, and nodes leave before it too. Where that fails the log says so.
void need_templates(SupervisorState& state);

/// The job as the scheduler is asked about it where state lies as `left`. It refers to both
/// arguments.
scheduler::ChangingJob changing_job(const SupervisorState& state, const StatePlacement& left);

/// Decides on the layout of these nodes and on how state gets there from `regrouping.left`.
///
/// Errors, upon which `regrouping` is not to be used:
/// - infeasible: nobody holds something any more, no layout works on these nodes, or none that fits
///   into their memory, also with the newest batch, that kinds of stages can run and whose nodes
///   see every source of data.
Status plan_regrouping(const SupervisorState& state, const std::set<NodeId>& nodes,
                       Regrouping& regrouping);

/// Memory of each device of the nodes that are there, as who somebody started has said it: nodes on
/// one machine share what it has. Else, and where the job says it, as on the head's machine.
engine::DeviceRooms rooms_of(const SupervisorState& state);

/// Room for what comes to each device, beside the present layout. Errors: as
/// `engine::check_state_memory`.
Status fits_beside(const SupervisorState& state, const std::map<DeviceSlot, Bytes>& arriving);

/// Takes up what was decided: from the last finished step on, in a new generation.
/// REQUIRES: a regrouping is under way, and no decided step is.
void regroup(SupervisorSelf self);

/// The layout is up: lets go of nodes that leave; the next step is the first of the new layout.
void regrouped(SupervisorSelf self);

/// From now on losses and joins are planned with these. Who was left without work by a head that
/// had none is looked at again, as if it joined.
void take_templates(SupervisorSelf self, const TemplateSetPtr& templates);

/// Writes the events, one for each kind, of a change whose first step has not ended, and will not:
/// another one follows, or the job ends.
void tell_of_change(SupervisorSelf self);

/// The same of losses that no layout follows, or will, if there are any: the job ends, and may have
/// waited for others before.
void tell_of_losses(SupervisorSelf self);

/// The first step of a new layout has ended: says what the change took.
void replayed(SupervisorSelf self, const observe::StepMetrics& step);

/// What is left to do of a node that the job has lost or let go: where it is still there it is told
/// why, or, without a reason, that it has left; its connection and its devices are forgotten.
void let_go_of_node(SupervisorSelf self, NodeId node, const std::string& why);

/// The same of a node that belongs to the job until now.
void forget_node(SupervisorSelf self, NodeId node, const std::string& why);

}  // namespace troupe::actors
