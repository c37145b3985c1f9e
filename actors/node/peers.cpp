#include "actors/node/peers.hpp"

#include <iterator>
#include <map>
#include <span>

namespace troupe::actors {

NodeReady introduce(NodeId node, const transport::Transport& transport,
                    const engine::DataIdentity& data) {
  NodeReady ready{node, {}, data};
  for (const std::byte byte : transport.address())
    ready.address.push_back(std::to_integer<std::uint8_t>(byte));
  return ready;
}

std::vector<std::string> remarks_on_paths(const transport::Transport& transport,
                                          const std::vector<NodeReady>& nodes) {
  struct Pairs {
    std::string first;
    std::size_t others = 0;
  };
  std::map<std::string, Pairs> found;
  for (auto one = nodes.begin(); one != nodes.end(); ++one)
    for (auto other = std::next(one); other != nodes.end(); ++other) {
      const std::string remark = transport.remark_on(std::as_bytes(std::span(one->address)),
                                                     std::as_bytes(std::span(other->address)));
      if (remark.empty()) continue;
      Pairs& pairs = found[remark];
      if (pairs.first.empty())
        pairs.first = std::to_string(one->node.value) + " and " + std::to_string(other->node.value);
      else
        ++pairs.others;
    }
  std::vector<std::string> lines;
  for (const auto& [remark, pairs] : found)
    lines.push_back(
        "nodes " + pairs.first +
        (pairs.others == 0 ? "" : " (and " + std::to_string(pairs.others) + " more pairs)") +
        " are " + remark);
  return lines;
}

Status connect_to(transport::Transport& transport, const NodeReady& peer) {
  return transport.connect(peer.node.value, std::as_bytes(std::span(peer.address)));
}

}  // namespace troupe::actors
