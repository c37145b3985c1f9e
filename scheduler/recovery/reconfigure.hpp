// Which ranks form which pipeline after nodes were lost or joined (Oobleck, dissertation 2.5.1).
//
// Pure; thread-safe; the same answer on every node. The rules, which reproduce the published cases:
//  1. Lost ranks leave; pipelines without ranks vanish.
//  2. Borrow: in pipeline order, a pipeline below the minimum takes nodes from the tail of the
//     currently largest pipeline (the last one among equals) while that one stays at the minimum or
//     above.
//  3. Merge, where none can give: short pipelines join in order; the last one that is still short
//     absorbs the first healthy one.
//  4. Joined nodes first complete a pipeline that is still short, then form new pipelines of
//     minimum size; each node that is left goes to the pipeline that is then shortest (the first
//     in the final order among equals).
//  5. Should merging leave fewer than f + 1 pipelines although the ranks suffice for them, new ones
//     of minimum size are formed from the tails of the largest. (The published rules do not say
//     this; without it a merge can give up fault tolerance for nothing.)
//  6. Each pipeline's ranks are sorted, then pipelines by (length, first rank).

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::scheduler {

using RankList = std::vector<std::int64_t>;

struct ReconfigureRequest {
  std::vector<RankList> pipelines;  ///< Disjoint; whole nodes.
  std::int64_t minimum = 1;         ///< Ranks of the smallest template; whole nodes.
  std::int64_t ranks_per_node = 1;  ///< Node of a rank: rank / ranks_per_node.
  std::int64_t fault_tolerance = 0;
  RankList lost;    ///< Whole nodes; each in some pipeline.
  RankList joined;  ///< Whole nodes; none in a pipeline, unless it is also lost.
};

/// The pipelines after the change. Cost: O(ranks x log ranks).
///
/// Errors:
/// - invalid_argument: a count out of range, a rank that is negative, twice in use, lost without
///   being there or joined while there; a node lost or joined in part (the fix names its ranks);
///   a minimum or a pipeline that is not whole nodes.
/// - infeasible: fewer than (f + 1) x minimum ranks remain; the fix says how many nodes must join,
///   or which fault tolerance still works.
Result<std::vector<RankList>> reconfigure(const ReconfigureRequest& request);

}  // namespace troupe::scheduler
