// How nodes tell each other where their transports are.

#pragma once

#include "actors/messages.hpp"
#include "transport/transport.hpp"

namespace troupe::actors {

/// What a node says about itself once its data and its transport are open.
NodeReady introduce(NodeId node, const transport::Transport& transport,
                    const engine::DataIdentity& data);

/// Connects to a node that introduced itself. Errors: as `Transport::connect`.
Status connect_to(transport::Transport& transport, const NodeReady& peer);

}  // namespace troupe::actors
