// What some rank must send off its node however batches are placed: the lower bound that shows how
// far node-wise rearrangement is from the optimum, for thousands of ranks.
//
// Pure. Internal to node-wise rearrangement; use node_wise.hpp.

#pragma once

#include <cstdint>

#include "balancer/ranks/rank_nodes.hpp"
#include "balancer/ranks/volume_table.hpp"

namespace troupe::balancer {

/// The largest over nodes of the Lagrangian dual of that node's own problem: which batches it
/// takes, as many as it has ranks, so that its worst rank sends least, were all batches free for
/// it. With weights w on its c ranks that add up to 1, no choice sends less than
///   sum_r w_r total_r - sum of the c largest over batches of sum_r w_r volume(r, batch).
/// Any weights give a valid bound; those of one rank alone give what it must send, equal ones the
/// node's average. They are improved in `rounds` steps of multiplicative weights, and in few where
/// the node cannot be the worst. Measured: 0.6 % below the linear relaxation of algorithm 3 at
/// 32 ranks and 0.3 % at 128, which also forbids two nodes the same batch.
///
/// Cost: O(rounds x volumes), 0.1 s for 2,560 ranks with 80 items each.
double node_wise_bound(const VolumeTable& table, const RankNodes& nodes, std::int32_t rounds = 200);

}  // namespace troupe::balancer
