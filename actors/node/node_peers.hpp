// Whom a node is connected to: the other nodes of its newest layout, and the head.

#pragma once

#include "actors/node/node_head.hpp"

namespace troupe::actors {

/// Lets go of the peers that the job does without, and of those in whose place another process is.
void disconnect_peers(NodeState& state);

/// Connects to the peers that are new, and notes what that took. Of each that is not reached it
/// tells the supervisor, which takes up another layout or ends the job; the next layout finds that
/// peer new again. Returns whether all are connected.
bool connect_peers(NodeSelf self);

}  // namespace troupe::actors
