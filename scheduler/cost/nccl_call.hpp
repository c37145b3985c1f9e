// How long a sum takes that all holders of a group call NCCL for (`is_by_nccl`): what moves over
// which link, and how many steps wait for one another.
//
// Pure.

#pragma once

#include <array>
#include <cstdint>

#include "runtime/vocabulary/sum_order.hpp"
#include "scheduler/cost/profile.hpp"
#include "scheduler/iteration/sum_traffic.hpp"

namespace troupe::scheduler {

/// Who gives what to whom in a call.
enum class CallWay : std::uint8_t {
  direct,  ///< Each holder its part of every chunk to that chunk's holder, then its sum to all.
  ring,    ///< Each holder to the next one.
  tree,    ///< Along the holders of each node, and between nodes up and down a tree.
};

/// Of the holder that has most to send.
struct CallTraffic {
  LinkElements elements{};        ///< Over each link.
  std::array<double, 3> steps{};  ///< By link: so often somebody waits for its latency.
};

/// What a sum of so many elements moves. Over links of a kind devices send side by side, each over
/// its own; holders of a node take turns in sending off it, as NCCL's channels do.
///
/// - direct, n holders, k of them on a node: 2 (n - k) / n of the elements to other nodes and
///   2 (k - 1) / n inside, in two steps. It is what `nccl_chain` does.
/// - ring: 2 (n - 1) / n in 2 (n - 1) steps, the least that any sum can send (Patarasu and Yuan,
///   Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009); of the steps two
///   for each node lead off it.
/// - tree: twice the elements, in two trees of half of them each, so that all holders send and
///   receive at once (Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast,
///   reduction and scan, 2009); twice the height of a tree of nodes steps, and as often along a
///   node's holders.
///
/// Steps of ring and tree are counted as NCCL's own model does (ncclTopoTuneModel, 2.28).
/// REQUIRES: at least two holders.
CallTraffic call_traffic(CallWay way, const CallShape& shape, double elements);

/// By `LinkClass`.
using LinkSpeeds = std::array<LinkSpeed, 3>;

/// Milliseconds until all of it has moved over free links: bytes over the slowest one, and every
/// step's latency. NCCL's own links and latencies are not measured: those of a profile stand for
/// them.
double moving_ms(const CallTraffic& traffic, double element_bytes, const LinkSpeeds& links);

/// What a call moves in this order of sums: direct in the chain's; in NCCL's own the ring or the
/// tree, whichever takes less time (ties: the ring), as NCCL chooses. REQUIRES: `is_by_nccl`, at
/// least two holders.
CallTraffic call_traffic(SumOrder order, const CallShape& shape, double elements,
                         double element_bytes, const LinkSpeeds& links);

}  // namespace troupe::scheduler
