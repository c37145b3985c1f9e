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
  const Link link{process, ++sessions_[process]};
  open_[peer] = link;
  return link;
}

std::optional<Link> Links::close(Peer peer) {
  const auto found = open_.extract(peer);
  if (!found) return std::nullopt;
  return found.mapped();
}

void Links::skip(Link link) {
  auto& newest = sessions_[link.process];
  newest = std::max(newest, link.session);
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
  const auto found = std::ranges::find(open_, process, [](auto& e) { return e.second.process; });
  if (found == open_.end()) return std::nullopt;
  return found->first;
}

Links::Standing Links::standing(Link link) const {
  const auto found = sessions_.find(link.process);
  const auto newest = found == sessions_.end() ? 0 : found->second;
  const bool is_open = peer_of(link.process).has_value();
  if (link.session > newest) return is_open ? Standing::newer : Standing::early;
  return is_open && link.session == newest ? Standing::open : Standing::stale;
}

}  // namespace troupe::transport
