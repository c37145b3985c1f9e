// Node-wise rearrangement: which rank takes which of the new batches, so that as little as possible
// leaves a node. Post-balancing does not care about the order of its batches, the network does.
//
// OrchMLLM section 5.2.2 and algorithm 3, whose variable has one row per rank and one column per
// node (cases.md). `assign_node_wise` is pure; `assign_node_wise_ilp` has a time limit and is not.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balancer/ranks/post_balance.hpp"
#include "balancer/ranks/rearrangement.hpp"

namespace troupe::balancer {

/// Volume that a batch takes from a rank. Several entries for one pair add up.
struct BatchVolume {
  std::int32_t origin_rank = 0;
  std::int32_t batch = 0;
  double volume = 0;  ///< Tokens or bytes; finite, >= 0.
};

/// As many batches as ranks. Ranks stand on nodes in order, any numbers of them on each: as many as
/// `node_ranks` says, or, where that is empty, `ranks_per_node`, on the last one maybe fewer.
struct NodeWiseProblem {
  std::int32_t rank_count = 0;      ///< >= 1.
  std::int32_t ranks_per_node = 1;  ///< c, >= 1.
  std::vector<BatchVolume> volumes;
  std::vector<std::int32_t> node_ranks = {};  ///< Per node, >= 1; together as many as there are.
};

struct NodeWise {
  std::vector<std::int32_t> rank_of_batch;  ///< A permutation.
  double inter_node_max = 0;    ///< Largest volume that one rank sends off its node (equation 5).
  double inter_node_total = 0;  ///< Of all ranks.
  double lower_bound = 0;       ///< No permutation has a smaller maximum.
  bool optimal = false;         ///< Proven: the maximum meets the bound.
};

/// Greedy rescue of the worst rank, then swaps. While a rank sends the most, its node takes the
/// free batch with the largest volume from it; batches left over go where most of them comes from;
/// then batches of two nodes are swapped while that lowers the largest volume. Last, the ranks of a
/// node share its batches by what each sends.
///
/// The maximum couples all batches, so this is no assignment problem; no bound, but
/// `lower_bound` says how far it is at most: for each rank the best batches it could keep, as many
/// as its node has ranks, and for each node the best of as many for all its ranks together.
/// Ties: lower rank, then lower batch. Cost: O(volumes + ranks x volumes per rank);
/// `evaluations_max` bounds the swaps.
///
/// Errors:
/// - invalid_argument: no ranks or ranks per node, nodes that hold another number of ranks in all,
///   an index out of range, a bad volume.
Result<NodeWise> assign_node_wise(const NodeWiseProblem& problem,
                                  std::int64_t evaluations_max = 20'000);

/// The same for the items of a post-balancing, their volume being their length, without making a
/// `NodeWiseProblem` first: half the time.
///
/// Errors:
/// - invalid_argument: no ranks per node; more old ranks than batches; a length is missing.
Result<NodeWise> assign_node_wise(const PostBalanced& balanced, std::int32_t ranks_per_node,
                                  std::int64_t evaluations_max = 20'000);

/// As `assign_node_wise`, then algorithm 3 through CBC from there where the program is small (at
/// most `kNodeWiseBinariesMax` batch-node pairs); its linear relaxation and
/// `node_wise_lower_bound` sharpen the bound.
/// Errors: as `assign_node_wise`; invalid_argument for a time limit that is not > 0.
Result<NodeWise> assign_node_wise_ilp(const NodeWiseProblem& problem, double time_limit_ms);

/// A sharper `lower_bound` for any number of ranks, for reports: for every node the least that its
/// worst rank sends, were all batches free for it (node_wise_bound.hpp). At least the bound of
/// `assign_node_wise`; 0.1 s for 2,560 ranks with 80 items each.
/// Errors: as `assign_node_wise`.
Result<double> node_wise_lower_bound(const NodeWiseProblem& problem);
Result<double> node_wise_lower_bound(const PostBalanced& balanced, std::int32_t ranks_per_node);

inline constexpr std::int64_t kNodeWiseBinariesMax = 8'192;

/// Volumes of a rearrangement: item lengths by origin rank and new batch, in tokens.
NodeWiseProblem node_wise_problem(const Rearrangement& rearrangement, const RankLengths& lengths,
                                  std::int32_t ranks_per_node);

/// The volumes that leave their node when batches stand on these ranks, by origin rank.
std::vector<double> inter_node_volumes(const NodeWiseProblem& problem,
                                       std::span<const std::int32_t> rank_of_batch);

}  // namespace troupe::balancer
