// Jobs that end by an error: what their nodes have is saved first. A part of the supervisor's
// actor; every function runs in it.
//
// Saved is the last finished step. A step that is decided is finished before, a layout that comes
// up is waited for; all of it within the share of `cluster.stop_timeout_s` that a stop has. A
// step that failed was not decided, and one that was not finite was discarded: parameters are those
// of the last COMMIT. Each device looks whether they are finite (`SaveOrder::is_checked`), and no
// older checkpoint is removed for this one.

#pragma once

#include <string>

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Whether steps have changed parameters since the newest checkpoint. Where all that followed it
/// were discarded, it is this state, and who goes on from it trains their samples after all.
bool has_unsaved(const SupervisorState& state);

/// Ends the job by an error once its nodes, all of which are there with their state, have saved it;
/// says how to go on from there. Where nothing has changed since the newest checkpoint, nothing is
/// written, and that is said. A job that would begin again from a checkpoint by itself does so from
/// this one. A job that is to stop already ends by this error then. Exit codes are those of `fail`,
/// so that who begins a job again at 75 does not do so for what would come again.
void save_and_fail(SupervisorSelf self, const Error& error);

/// The same without this node, which is lost, or whose state cannot be had or trusted: the others
/// save what they have, all of the model or a part that is worth it. `what`: `node 2 (host, pid 71)
/// was lost: was killed by signal 11`.
void save_and_fail_without(SupervisorSelf self, NodeId lost, const std::string& what,
                           const Error& error);

}  // namespace troupe::actors
