// How nodes come into a job, at its start and at any time later, and how they leave it in order. A
// part of the supervisor's actor; every function runs in it.

#pragma once

#include <string>
#include <variant>

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// A node wants a place. Errors: why it gets none, and the fix.
caf::result<NodeWelcome> join(SupervisorSelf self, const NodeHello& hello);

/// The same of a node that said so a while ago.
std::variant<NodeWelcome, caf::error> take_in(SupervisorSelf self, const NodeHello& hello,
                                              const caf::strong_actor_ptr& sender);

/// A node has opened its data. The last one that was waited for begins the job; one that comes
/// later gets work when the step under way has ended.
void node_ready(SupervisorSelf self, const NodeReady& ready);

/// Whether this place is one of the head's own nodes, which it starts once, on its own machine: in
/// the place of one that was lost somebody may come whom it did not start (`NodeLink`).
bool is_own_place(const SupervisorState& state, NodeId node);

/// A process that the head started ended before it came to a job that was taken up: the job goes
/// on, and whoever asks may have the place. Which one it was to take is not known: none waits any
/// more.
void give_up_own_places(SupervisorState& state, const std::string& what);

/// A node that was welcomed to a running job did not come that far: it is no loss.
void newcomer_lost(SupervisorSelf self, NodeId node, const std::string& why);

/// Lets go of nodes that were welcomed to a running job and do not get ready within
/// `cluster.open_timeout_s`.
void watch_newcomers(SupervisorSelf self);

/// What follows where fewer nodes than `cluster.min_nodes` stay, once those that leave have left;
/// empty: as many stay.
std::string too_few_behind_leavers(const SupervisorState& state);

/// This node shall leave before the next step. Errors: infeasible, not_found: it cannot.
Status drain(SupervisorSelf self, NodeId node, const std::string& why, bool by_signal);

/// The process of a node was told to end. It leaves, unless most others are told so too within half
/// a second: that is meant for the job.
void node_told_to_end(SupervisorSelf self, NodeId node, const std::string& why);
/// That half second is over.
void settle_told_nodes(SupervisorSelf self);

/// Between two steps: takes in who has joined, lets go of who leaves. Returns whether that is on
/// its way.
bool change_members(SupervisorSelf self);

}  // namespace troupe::actors
