// Whom a node is connected to: the other nodes of its newest layout, and the head.

#pragma once

#include <string>

#include "actors/node/node_head.hpp"

namespace troupe::actors {

/// Lets go of the peers that the job does without, and of those in whose place another process is.
void disconnect_peers(NodeState& state);

/// Connects to the peers that are new, and notes what that took. Of each that is not reached it
/// tells the supervisor, which takes up another layout or ends the job; the next layout finds that
/// peer new again. Returns whether all are connected.
bool connect_peers(NodeSelf self);

/// The way to a peer broke, or never came up (`was_up`), `how`: tells the supervisor, which alone
/// can tell whether the peer is lost, or the way to it, or this node. Nothing where the peer was
/// let go of.
void peer_lost(NodeSelf self, NodeId peer, bool was_up, const std::string& how);

/// Says again which ways to nodes of its newest layout are broken: nobody may have heard it,
/// because no head was there, or another layout had begun. Before it connects, which may take long.
void tell_broken_ways(NodeSelf self);

/// The same of the way to the head, once the node has all state of its newest layout: then it costs
/// nobody before the model is collected, as one that breaks behind a layout.
void tell_broken_way_to_head(NodeSelf self);

}  // namespace troupe::actors
