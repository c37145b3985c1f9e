#include "actors/peers.hpp"

#include <span>

namespace troupe::actors {

NodeReady introduce(NodeId node, const transport::Transport& transport,
                    const engine::DataIdentity& data) {
  NodeReady ready{node, {}, data};
  for (const std::byte byte : transport.address())
    ready.address.push_back(std::to_integer<std::uint8_t>(byte));
  return ready;
}

Status connect_to(transport::Transport& transport, const NodeReady& peer) {
  return transport.connect(peer.node.value, std::as_bytes(std::span(peer.address)));
}

}  // namespace troupe::actors
