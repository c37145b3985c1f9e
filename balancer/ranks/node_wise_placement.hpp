// Batches on nodes and what each rank still sends away: the state that the fast node-wise solver
// improves. Internal to node-wise rearrangement; single owner.

#pragma once

#include <cstdint>
#include <vector>

#include "balancer/ranks/rank_nodes.hpp"
#include "balancer/ranks/volume_table.hpp"

namespace troupe::balancer {

class Placement {
 public:
  /// Starts with no batch placed, so that everything leaves its node. Keeps both, by reference.
  Placement(const VolumeTable& table, const RankNodes& nodes);

  /// While some rank's node has room and a batch it wants is free: the worst such rank takes it.
  /// The rest goes where most of it comes from.
  void rescue_worst();

  /// Swaps batches of two nodes while that lowers the largest volume. REQUIRES: all placed.
  void swap_while_better(std::int64_t evaluations_max);

  /// Ranks of a node take its batches by what each sends of them. REQUIRES: all placed.
  std::vector<std::int32_t> ranks_of_batches() const;

  /// Per rank: volume that leaves its node.
  const std::vector<double>& sent() const { return off_; }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  static constexpr std::uint32_t kFree = UINT32_MAX;

  bool is_full(std::size_t node) const { return batches_[node].size() == nodes_.size(node); }
  /// Calls visit(rank, volume) for the volumes of a batch that come from a node's ranks.
  template <class Visit>
  void on_node(std::size_t batch, std::size_t node, Visit visit) const;
  double volume_of(std::size_t batch, std::size_t rank) const;
  std::size_t best_free_batch(std::size_t rank) const;
  std::size_t most_related_node(std::size_t batch);
  void place(std::size_t batch, std::size_t node);
  /// Calls visit(rank) for the ranks that send less now.
  template <class Visit>
  void place(std::size_t batch, std::size_t node, Visit visit);
  void remove(std::size_t batch);
  void swap(std::size_t a, std::size_t b);
  bool stays_below(double limit, std::size_t gone, std::size_t come, std::size_t node) const;
  bool relieve(std::size_t worst, std::int64_t& evaluations_left);
  void share(std::size_t node, std::vector<std::int32_t>& rank_of) const;

  const VolumeTable& table_;
  const RankNodes& nodes_;
  std::size_t ranks_;
  std::vector<double> off_;                        // Per rank: volume that leaves its node.
  std::vector<std::uint32_t> node_of_;             // Per batch.
  std::vector<std::vector<std::size_t>> batches_;  // Per node.
  std::vector<double> related_;                    // Per node, scratch: volume of one batch.
  std::size_t first_free_ = 0;                     // No node before it has room.
};

}  // namespace troupe::balancer
