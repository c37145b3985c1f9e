// How nodes tell each other where their transports are.

#pragma once

#include <string>
#include <vector>

#include "actors/link/messages.hpp"
#include "transport/transport.hpp"

namespace troupe::actors {

/// What a node says about itself once its data and its transport are open.
NodeReady introduce(NodeId node, const transport::Transport& transport,
                    const engine::DataIdentity& data);

/// What `Transport::remark_on` says of nodes by pairs: a line per remark, which names the first
/// pair and counts the others. Cost: quadratic in nodes.
std::vector<std::string> remarks_on_paths(const transport::Transport& transport,
                                          const std::vector<NodeReady>& nodes);

/// Connects to a node that introduced itself. Errors: as `Transport::connect`.
Status connect_to(transport::Transport& transport, const NodeReady& peer);

}  // namespace troupe::actors
