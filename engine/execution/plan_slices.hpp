// What each node gets of an iteration plan: the lists of its own devices, and of samples, parts and
// messages those that these are about. A slice is as large as the node's work, however many other
// nodes there are.
//
// Pure.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::engine {

/// The slices of one iteration.
class PlanSlices {
 public:
  /// Looks through the whole plan once, for all nodes. Both outlive this. Cost: O(plan).
  PlanSlices(const IterationPlan& iteration, const ParallelPlan& plan);

  /// What a node runs. Empty are the lists of other nodes' devices, and the microbatches of
  /// replicas without a stage here. Messages and deliveries are those with an end here and those
  /// that pass, by the ids that actions call them. Samples and pieces are those that parts,
  /// messages and deliveries of the slice name: by numbers of the slice, in the plan's order, so
  /// that what is computed has the same bits. What is counted of the whole batch says so itself
  /// (`trained_tokens`, `segments`).
  /// Cost: the node's share of the plan, and a few words for each device, stage and replica.
  IterationPlan of(NodeId node) const;

 private:
  /// What concerns one node, by places in the plan, ascending.
  struct Share {
    std::vector<std::size_t> devices, replicas, messages, deliveries;
  };

  void copy(const Share& share, IterationPlan& slice) const;

  const IterationPlan& iteration_;
  std::map<NodeId, Share> shares_;
  std::vector<std::int64_t> segments_;  ///< As `IterationPlan::segments`.
};

}  // namespace troupe::engine
