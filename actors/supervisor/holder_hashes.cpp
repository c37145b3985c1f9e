#include "actors/supervisor/holder_hashes.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

namespace troupe::actors {

namespace {

constexpr std::size_t kNodesShown = 8;

/// Of one group: who has parameters of which hash.
using Votes = std::map<std::uint64_t, std::set<NodeId>>;

std::string node_text(NodeId node) { return "node " + std::to_string(node.value); }

/// How many different hashes each node has.
std::map<NodeId, int> hashes_by_node(const Votes& votes) {
  std::map<NodeId, int> counts;
  for (const auto& [hash, nodes] : votes)
    for (const NodeId node : nodes) ++counts[node];
  return counts;
}

/// The nodes that agree with more than half of all; none: there are no such.
std::set<NodeId> majority_of(const Votes& votes) {
  const auto counts = hashes_by_node(votes);
  for (const auto& [hash, nodes] : votes) {
    std::set<NodeId> agreeing;
    for (const NodeId node : nodes)
      if (counts.at(node) == 1) agreeing.insert(node);
    if (2 * agreeing.size() > counts.size()) return agreeing;
  }
  return {};
}

/// `3 nodes have the same, but not node 2`.
std::string minority_text(const std::set<NodeId>& agreeing, const std::set<NodeId>& others) {
  std::string text = std::to_string(agreeing.size()) +
                     (agreeing.size() == 1 ? " node has" : " nodes have") + " the same, but not ";
  std::size_t shown = 0;
  for (const NodeId node : others) {
    if (shown == kNodesShown) return text + " and others";
    text += (shown++ == 0 ? "" : ", ") + node_text(node);
  }
  return text;
}

/// `node 0 has 1f2e3d4c, node 2 has 9a8b7c6d`: first halves of hashes.
std::string open_text(const Votes& votes) {
  std::string text;
  std::size_t shown = 0;
  for (const auto& [hash, nodes] : votes) {
    std::array<char, 16> digits{};
    std::snprintf(digits.data(), digits.size(), "%08x", static_cast<unsigned>(hash >> 32));
    for (const NodeId node : nodes) {
      if (shown == kNodesShown) return text + " and so on";
      text += (shown++ == 0 ? "" : ", ") + node_text(node) + " has " + digits.data();
    }
  }
  return text;
}

}  // namespace

std::optional<Disagreement> find_disagreement(const ParallelPlan& plan,
                                              const std::vector<engine::DeviceReport>& reports) {
  std::map<GroupId, Votes> groups;
  for (const auto& report : reports)
    for (const auto& holder : report.hashes)
      groups[holder.group][holder.hash].insert(plan.devices[report.device.index()].node);
  std::optional<Disagreement> found;
  for (const auto& [group, votes] : groups) {
    if (votes.size() == 1) continue;
    const auto agreeing = majority_of(votes);
    std::set<NodeId> others;
    for (const auto& [node, count] : hashes_by_node(votes))
      if (!agreeing.contains(node)) others.insert(node);
    if (!found)
      found = Disagreement{
          {Errc::internal,
           "holders of '" + plan.groups[group.index()].name + "' disagree after step " +
               std::to_string(reports.front().step) + ": " +
               (agreeing.empty() ? open_text(votes) : minority_text(agreeing, others)),
           "debug.parameter_hashes",
           "have the memory and the network of these machines tested before the job goes on there"},
          {},
          false};
    if (agreeing.empty())
      found->is_open = true;
    else
      found->mistrusted.merge(others);
  }
  return found;
}

}  // namespace troupe::actors
