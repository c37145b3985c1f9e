#include "transport/links.hpp"

#include <algorithm>
#include <string>

namespace troupe::transport {

Result<Link> Links::open(Peer peer, std::uint64_t process) {
  if (open_.contains(peer)) {
    return Error{Errc::invalid_argument, "peer " + std::to_string(peer) + " is connected already",
                 "", "disconnect it first"};
  }
  if (const auto other = peer_of(process)) {
    return Error{Errc::invalid_argument,
                 "the address given for peer " + std::to_string(peer) +
                     " belongs to the connected peer " + std::to_string(*other),
                 "", "give every node its own id"};
  }
  auto& entry = processes_[process];
  entry.peer = peer;
  const Link link{process, ++entry.sessions};
  open_[peer] = link;
  return link;
}

std::optional<Link> Links::close(Peer peer) {
  const auto found = open_.extract(peer);
  if (!found) return std::nullopt;
  processes_[found.mapped().process].peer.reset();
  return found.mapped();
}

void Links::skip(Link link) {
  auto& sessions = processes_[link.process].sessions;
  sessions = std::max(sessions, link.session);
}

std::optional<Link> Links::find(Peer peer) const {
  const auto found = open_.find(peer);
  if (found == open_.end()) return std::nullopt;
  return found->second;
}

std::vector<Peer> Links::peers() const {
  std::vector<Peer> peers;
  for (const auto& [peer, link] : open_) peers.push_back(peer);
  return peers;
}

std::optional<Peer> Links::peer_of(std::uint64_t process) const {
  const auto found = processes_.find(process);
  if (found == processes_.end()) return std::nullopt;
  return found->second.peer;
}

Links::Standing Links::standing(Link link) const {
  const auto found = processes_.find(link.process);
  if (found == processes_.end()) return Standing::early;
  const auto& [sessions, peer] = found->second;
  if (link.session > sessions) return peer ? Standing::newer : Standing::early;
  return peer && link.session == sessions ? Standing::open : Standing::stale;
}

}  // namespace troupe::transport
