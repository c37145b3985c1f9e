#include "actors/node/node_peers.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "actors/node/peers.hpp"

namespace troupe::actors {

namespace {

/// Of a node both ends are missed: where a way was never there, either may be at fault, and the one
/// that was asked first is no more suspect than the other. Of the head it is this node alone that
/// can be done without.
void tell_unreached(NodeSelf self, NodeId peer, const Error& error) {
  const auto& state = self->state;
  const NodeId own = state.resources->node;
  const EpochNumber epoch_number = state.configuration.epoch_number;
  const bool is_head = peer.value >= state.resources->setup.job.cluster.nodes;
  if (error.code != Errc::transport_failed)
    return self->send(state.supervisor, failed_atom::value, own, epoch_number, error);
  self->send(state.supervisor, lost_atom::value, own, peer, epoch_number, error.message);
  if (!is_head)
    self->send(state.supervisor, lost_atom::value, peer, own, epoch_number, error.message);
}

}  // namespace

void disconnect_peers(NodeState& state) {
  const auto is_peer = [&](const std::pair<const NodeId, ByteString>& known) {
    return std::any_of(state.configuration.nodes.begin(), state.configuration.nodes.end(),
                       [&](const NodeReady& peer) {
                         return peer.node == known.first && peer.address == known.second;
                       });
  };
  for (auto peer = state.connected.begin(); peer != state.connected.end();)
    if (is_peer(*peer)) {
      ++peer;
    } else {
      const std::int32_t node = peer->first.value;
      state.resources->transport->disconnect(
          node,
          {Errc::transport_failed, "the job goes on without node " + std::to_string(node), {}, {}});
      peer = state.connected.erase(peer);
    }
}

bool connect_peers(NodeSelf self) {
  auto& state = self->state;
  Duration took{};
  bool reaches_all = true;
  for (const NodeReady& peer : state.configuration.nodes) {
    if (!state.connected.emplace(peer.node, peer.address).second) continue;
    const Time begin = self->clock().now();
    const Status connected = connect_to(*state.resources->transport, peer);
    took += self->clock().now() - begin;
    if (connected.ok()) continue;
    reaches_all = false;
    state.connected.erase(peer.node);
    tell_unreached(self, peer.node, connected.error());
  }
  state.connect_ms = std::chrono::duration<double, std::milli>(took).count();
  return reaches_all;
}

}  // namespace troupe::actors
