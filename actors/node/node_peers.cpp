#include "actors/node/node_peers.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "actors/node/peers.hpp"

namespace troupe::actors {

namespace {

/// The head is one more peer behind all places.
bool is_place_of_head(const NodeState& state, NodeId peer) {
  return peer.value >= state.resources->setup.job.cluster.nodes;
}

/// Of the newest layout, whose number it bears: the supervisor drops what is of another one. A way
/// that was never there its other end misses, too: between nodes either may be at fault, and the
/// one that says so first is no more suspect than the other. That the head misses this node costs
/// it its place also behind the layout, where a way that broke waits for the model's collection.
void tell_broken(NodeSelf self, NodeId peer, const PeerWay& way) {
  const auto& state = self->state;
  const NodeId own = state.resources->node;
  const EpochNumber epoch_number = state.configuration.epoch_number;
  if (way.was_there || !is_place_of_head(state, peer))
    self->send(state.supervisor, lost_atom::value, own, peer, epoch_number, *way.broken);
  if (!way.was_there)
    self->send(state.supervisor, lost_atom::value, peer, own, epoch_number, *way.broken);
}

/// Of all ways that broke: the one to the head, or those to nodes.
void tell_all_broken(NodeSelf self, bool to_head) {
  for (const auto& [peer, way] : self->state.connected)
    if (way.broken && is_place_of_head(self->state, peer) == to_head) tell_broken(self, peer, way);
}

/// Of a node both ends are missed: where a way was never there, either may be at fault, and the one
/// that was asked first is no more suspect than the other. Of the head it is this node alone that
/// can be done without.
void tell_unreached(NodeSelf self, NodeId peer, const Error& error) {
  const auto& state = self->state;
  const NodeId own = state.resources->node;
  const EpochNumber epoch_number = state.configuration.epoch_number;
  const bool is_head = is_place_of_head(state, peer);
  if (error.code != Errc::transport_failed)
    return self->send(state.supervisor, failed_atom::value, own, epoch_number, error);
  self->send(state.supervisor, unreached_atom::value, own, peer, epoch_number, error.message);
  if (!is_head)
    self->send(state.supervisor, unreached_atom::value, peer, own, epoch_number, error.message);
}

}  // namespace

void disconnect_peers(NodeState& state) {
  const auto is_peer = [&](const std::pair<const NodeId, PeerWay>& known) {
    return std::any_of(state.configuration.nodes.begin(), state.configuration.nodes.end(),
                       [&](const NodeReady& peer) {
                         return peer.node == known.first && peer.address == known.second.address;
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
    if (!state.connected.emplace(peer.node, PeerWay{peer.address, {}}).second) continue;
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

void peer_lost(NodeSelf self, NodeId peer, bool was_up, const std::string& how) {
  const auto way = self->state.connected.find(peer);
  if (way == self->state.connected.end()) return;
  way->second.broken = how;
  way->second.was_there = was_up;
  tell_broken(self, peer, way->second);
}

void tell_broken_ways(NodeSelf self) { tell_all_broken(self, /*to_head=*/false); }

void tell_broken_way_to_head(NodeSelf self) { tell_all_broken(self, /*to_head=*/true); }

}  // namespace troupe::actors
