// A job that is left with too few nodes for any layout, though they have all of its state: how it
// waits for others, and how it ends where none come. And one that could go on, but loses fewer
// samples where it waits for a node that is on its way (supervisor_wait_choice.hpp). A part of the
// supervisor's actor; every function runs in it.

#pragma once

#include <map>
#include <optional>
#include <string>

#include "actors/coordination/coordinator.hpp"
#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

struct ChosenWait;

/// A node is lost without which no layout works, `why`, though the others have all of its state:
/// they finish a step whose COMMIT is known, save, and wait `recovery.wait_for_nodes_s` from the
/// first such loss on, with what they hold. `what`: `node 2 (host, pid 71) was lost: was killed by
/// signal 9`. `is_taken`: as for `recover`.
///
/// Returns false, and does nothing, where they have not, the job is not to wait, the lost node was
/// one of the head's own, whose place only another head fills by itself, or one that is left was
/// told to end by a signal and takes its state with it.
bool wait_for_nodes(SupervisorSelf self, NodeId lost, const std::string& what, const Error& why,
                    bool is_taken = false);

/// The same of nodes that another head has gathered, and on which no layout works, `why`: they wait
/// for others in the places of those that were lost with the head before, the head's own among
/// them, which it starts anew. `what`: `the head was lost; another one gathered its nodes`, and who
/// is missing. REQUIRES: it leads them, they hold all of the state, and the regrouping says who was
/// lost.
void wait_with_gathered(SupervisorSelf self, const std::string& what, const Error& why);

/// Nodes that wanted to leave stay, `why`: they hear it, and so does the log.
void keep_in_job(SupervisorSelf self, const std::map<NodeId, Leaving>& leavers,
                 const std::string& why);

/// A node is lost without which `regrouping` goes on, and `move` follows. Begins the wait that was
/// chosen before that, or goes on with it; none: one that is under way is over, as soon as a step
/// whose COMMIT is known is finished, also one that was not chosen: others are needed no longer.
void settle_wait(SupervisorSelf self, std::optional<ChosenWait> chosen, Move move);

/// Goes on where those that came since are enough for a layout, one is found by new templates, or
/// one works since another node was lost. Ends the job, behind a save, where there is none in time.
///
/// Of a wait that was chosen: where it is over (`end_of_wait`), weighs the next one against going
/// on with those that are there.
void watch_wait(SupervisorSelf self);

}  // namespace troupe::actors
