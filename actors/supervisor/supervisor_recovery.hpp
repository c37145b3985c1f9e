// How a job goes on without nodes that are lost: what is left over, and what of the steps under way
// still counts. A part of the supervisor's actor; every function runs in it.
//
// A step whose COMMIT is known is finished by all who are left, because each of them has its sums;
// any other step is given up, and its samples are trained again by the next layout.

#pragma once

#include <optional>
#include <string>

#include "actors/coordination/membership.hpp"
#include "actors/supervisor/layout_change.hpp"
#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Goes on without this node: all others hear of a new layout as soon as no decided step is under
/// way. `what`: `node 2 (host, pid 71) was lost: was killed by signal 9`. `is_taken`: it is
/// gone already, and another process has its place, which stays.
///
/// Errors, upon which nothing has changed:
/// - infeasible: as `plan_regrouping`.
/// - unavailable: the job has not begun, or ends.
Status recover(SupervisorSelf self, NodeId lost, const std::string& what, bool is_taken = false);

/// Adds a loss to what a change of layout is for: that of a member, noticed now.
void add_loss(const SupervisorState& state, Regrouping& regrouping, NodeId lost,
              const std::string& what, Time noticed);

/// A clause of the log where a change may find no room beside the present layout; else empty.
std::string tight_words(const Regrouping& regrouping);

/// The same of those that joined, have no work yet, and stay.
void add_newcomers(const SupervisorState& state, Regrouping& regrouping);

/// Why the others could not save what is done once this node is gone; empty: they could.
std::string unsaved_without(const SupervisorState& state, NodeId lost);

/// A node is lost while the job stops: the others save what is done, its devices count for nothing
/// any more. A layout that comes up does so no further: each has what it had, or what that layout
/// wants where all were told to turn over. Where the lost one had the last copy of something, that
/// is an incomplete save, or, where it is worth none (`worth_saving`), the job ends at once.
/// `what`, `is_taken`: as above.
void lose_while_stopping(SupervisorSelf self, NodeId lost, const std::string& what,
                         bool is_taken = false);

/// A node is lost without which the job cannot go on, `why`: the others save what is done, all of
/// its state or a part that is worth it, and the job ends. Returns false, and does nothing, where
/// it is worth nothing, or nothing is done yet. Where it was one of the head's own, which begin
/// again with it, all state is there, and the job begins again from checkpoints, it does so from
/// this one.
bool end_with_what_is_left(SupervisorSelf self, NodeId lost, const std::string& what,
                           const std::string& why, bool is_taken = false);

/// Goes on without this node, or waits for others, or begins to end the job behind a save. None:
/// one of these. Else why not, as far as that says more than the loss.
std::optional<std::string> go_on_without(SupervisorSelf self, NodeId lost, const std::string& what,
                                         bool is_taken = false);

/// A node is lost after it has offered all that is collected: a save may still wait for it, and the
/// recorder for its tensors, which do not come from one that is silent. Where it had a last copy it
/// counts as its holder until it is known whether that has come (`Coordinator::left`).
void do_without_holder(SupervisorSelf self, NodeId lost, const std::string& what);

/// A node misses a peer, `how` in its transport's words; who of them is lost shows a moment later.
/// The head is the node behind all places: as a reporter, of a way that was never there.
void peer_missed(SupervisorSelf self, NodeId reporter, NodeId peer, EpochNumber epoch_number,
                 const std::string& how, NoWay why = NoWay::broken);

/// A node and the head have no way for tensors, `how`, though it answers. It is done without in a
/// moment, unless it is lost by then, or no node has such a way. One that was there and breaks
/// while steps run costs nobody yet: nothing goes that way before the model is collected. Nor does
/// one that could not be made where no layout waits for it any more: the next one tries anew.
void head_missed(SupervisorSelf self, NodeId node, const std::string& how,
                 NoWay why = NoWay::broken, bool was_there = true);

/// The model is to be collected: does without nodes whose way to the head broke before. Returns
/// whether there are any; then it is not collected now.
bool lose_broken_ways(SupervisorSelf self);

/// That moment has passed and the layout is still the same: does without nodes that are cut off
/// from the head; else without the node that most peers miss and that the job can do without; or
/// ends with `error`.
void settle_missed_peers(SupervisorSelf self, EpochNumber epoch_number, const Error& error);

}  // namespace troupe::actors
