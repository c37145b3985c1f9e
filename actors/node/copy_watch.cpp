#include "actors/node/copy_watch.hpp"

#include <chrono>
#include <utility>

namespace troupe::actors {

namespace {

/// So many signs in the time after which a peer's silence is told.
constexpr int kSigns = 3;

/// In the place where state has the pair of devices (`StateTransfer`): no pair has this one.
constexpr std::uint64_t kSignPair = ~std::uint64_t{0};

}  // namespace

void CopyWatch::begin(transport::Transport& transport, const Configuration& layout, NodeId node) {
  end();
  transport_ = &transport;
  epoch_number_ = layout.epoch_number;
  pace_ = {};
  for (const StateMove& move : layout.moves) {
    if (move.is_from_seed() || move.from.node == move.to.node) continue;
    const NodeId peer = move.from.node == node ? move.to.node : move.from.node;
    if (!peers_.contains(peer)) peers_.emplace(peer, Peer{receive_sign(peer)});
  }
}

void CopyWatch::end() {
  for (const auto& [node, peer] : peers_) peer.sign.cancel();
  peers_.clear();
}

transport::Tag CopyWatch::tag() const {
  return transport::make_tag(epoch_number_, transport::TagKind::state, kSignPair, 0);
}

transport::Operation CopyWatch::receive_sign(NodeId peer) {
  return transport_->receive(peer.value, tag(), {});
}

/// Whether anything has come from it since the last look.
bool CopyWatch::has_come(NodeId node, Peer& peer, const WorkOfDevices& devices) {
  bool has = false;
  while (peer.sign.done() && peer.sign.wait(transport::within({})).ok()) {
    peer.sign = receive_sign(node);
    has = true;
  }
  std::int64_t came = 0;
  for (const auto& [device, in_hand] : devices) came += in_hand->came_from(node);
  return std::exchange(peer.came, came) != came || has;
}

std::vector<engine::SilentPeer> CopyWatch::pass(Time now, Duration interval,
                                                const WorkOfDevices& devices) {
  if (!peers_.empty() && pace_.due(now, interval / kSigns))
    for (const auto& [node, peer] : peers_) transport_->send(node.value, tag(), {});
  std::vector<engine::SilentPeer> silent;
  for (auto& [node, peer] : peers_) {
    if (has_come(node, peer, devices)) peer.silence.heard(now);
    const bool is_silent = peer.silence.pass(now, interval);
    const bool has_ended = peer.sign.done();  // Else the next one is waited for.
    if (!is_silent || has_ended) continue;
    const double lasted_s = std::chrono::duration<double>(peer.silence.lasted()).count();
    silent.push_back({node, epoch_number_, lasted_s});
  }
  return silent;
}

}  // namespace troupe::actors
