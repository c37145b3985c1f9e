// Who comes to a head that gathers the nodes of a lost one, and what it is told. A part of the
// supervisor's actor; every function runs in it.

#pragma once

#include <string>
#include <vector>

#include "actors/supervisor/gathering.hpp"
#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// A node wants a place while others are gathered, or shows what it holds: one that begins is
/// answered when all are gathered; one that comes too late begins anew. One that still finishes a
/// step comes again, and is waited for.
caf::result<NodeWelcome> join_gathered(SupervisorSelf self, const NodeHello& hello);

/// What this one holds is of no use: it begins anew, and joins like others. REQUIRES: nodes are
/// gathered.
void dismiss(SupervisorSelf self, NodeId id, const std::string& why);

/// Those that began meanwhile get a place, or hear why not. REQUIRES: all are gathered.
void answer_later_ones(SupervisorSelf self, std::vector<Latecomer> later);

}  // namespace troupe::actors
