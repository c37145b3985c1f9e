// What becomes of a node whose process has ended, as the head says, whose child it was, or is of no
// use any more. A part of the supervisor's actor; every function runs in it.

#pragma once

#include <cstdint>
#include <string>

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Whether the head started this node's process: nobody else comes in its place, and where the job
/// begins again the head starts it again. Not so who came in the place of such a node.
bool is_own_process(const SupervisorState& state, NodeId node);

/// A local process ended. What it says about the reason is better than a lost connection.
/// `signal`: that ended it; 0: none.
void process_exited(SupervisorSelf self, std::int32_t pid, const std::string& how,
                    std::int32_t signal);

/// A device of this node has failed, and no layout works without the node, or the job stops: what
/// it held is lost as if its process had ended. That one is told to end.
void device_lost(SupervisorSelf self, NodeId node, const Error& error);

}  // namespace troupe::actors
