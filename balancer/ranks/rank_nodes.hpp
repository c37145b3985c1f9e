// Which ranks are on which node. Internal to node-wise rearrangement; an immutable value.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "balancer/ranks/node_wise.hpp"

namespace troupe::balancer {

/// Ranks stand on nodes in order.
class RankNodes {
 public:
  /// So many to a node, the last one maybe fewer. REQUIRES: >= 1.
  RankNodes(std::size_t ranks, std::int32_t ranks_per_node) {
    for (std::size_t left = ranks; left > 0;) {
      const std::size_t size = std::min(left, static_cast<std::size_t>(ranks_per_node));
      add(size);
      left -= size;
    }
  }
  /// REQUIRES: a problem that `assign_node_wise` would not refuse.
  explicit RankNodes(const NodeWiseProblem& problem)
      : RankNodes(problem.node_ranks.empty() ? static_cast<std::size_t>(problem.rank_count) : 0,
                  problem.ranks_per_node) {
    for (const std::int32_t ranks : problem.node_ranks) add(static_cast<std::size_t>(ranks));
  }

  std::size_t count() const { return begins_.size() - 1; }  ///< Of nodes.
  std::size_t begin(std::size_t node) const { return begins_[node]; }
  std::size_t end(std::size_t node) const { return begins_[node + 1]; }
  /// How many ranks it has, and how many batches it takes.
  std::size_t size(std::size_t node) const { return end(node) - begin(node); }
  std::size_t of(std::size_t rank) const { return node_of_[rank]; }

 private:
  void add(std::size_t ranks) {
    node_of_.resize(node_of_.size() + ranks, static_cast<std::uint32_t>(count()));
    begins_.push_back(node_of_.size());
  }

  std::vector<std::size_t> begins_{0};  // Of each node, and the end of all.
  std::vector<std::uint32_t> node_of_;  // Per rank.
};

}  // namespace troupe::balancer
