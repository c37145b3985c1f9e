// Who comes to a head that gathers the nodes of a lost one, and what it is told. A part of the
// supervisor's actor; every function runs in it.

#pragma once

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// A node wants a place while others are gathered, or shows what it holds: one that begins is
/// answered when all are gathered; one that comes too late begins anew.
caf::result<NodeWelcome> join_gathered(SupervisorSelf self, const NodeHello& hello);

}  // namespace troupe::actors
