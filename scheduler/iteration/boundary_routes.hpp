// The routes of one redistribution, rank by rank: which rows go from which device to which, over
// how many hops, and how long that takes.
//
// Pure values; thread-safe. By every route each rank gets the same rows, and the way of gradients
// is the same function with both sides exchanged.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/route.hpp"
#include "runtime/vocabulary/units.hpp"
#include "scheduler/iteration/rank_links.hpp"

namespace troupe::scheduler {

/// The ranks of one replica at the boundary, each on a device of its own.
struct RankGroup {
  Parallelism grid;
  std::vector<DeviceSlot> ranks;  ///< As many as the grid has; tp fastest.
};

/// Rows that one replica has and another one takes, in their order.
struct RowInterval {
  std::int32_t source = 0;       ///< Index into the sources,
  std::int32_t destination = 0;  ///< and into the destinations.
  TokenCount rows = 0;           ///< > 0.
};

/// Consecutive rows of an interval on their way from one device to another, or kept on one.
struct RankMessage {
  std::int32_t hop = 0;      ///< Sends what came in earlier hops; from 0, some may be empty.
  std::size_t interval = 0;  ///< Index into the intervals.
  DeviceSlot from;
  DeviceSlot to;         ///< The same device: nothing leaves it.
  TokenCount begin = 0;  ///< First row, counted in the interval.
  TokenCount rows = 0;   ///< > 0.

  friend bool operator==(const RankMessage&, const RankMessage&) = default;
};

/// What rank `part` of `parts` along cp has, or needs, of an interval: an even cut, in row order.
/// Ranks along tp have, and need, the rows of their place along cp.
struct RowCut {
  TokenCount begin = 0;
  TokenCount end = 0;  ///< Excluded.
};
RowCut even_cut(TokenCount rows, std::int32_t parts, std::int32_t part);

/// Whether rows stay on their devices: the same ranks need what they have.
bool keeps_rows(const RankGroup& from, const RankGroup& to);

/// All messages of a redistribution by a route. Rows that stay on their devices move by none.
///
/// - direct, one hop: each rank gets its rows from the ranks along tp that have them, which share
///   the work evenly; a rank that has its rows already keeps them.
/// - leader, up to four hops: what other ranks along cp have goes to the first rank of the source;
///   that sends all rows of the interval to the first rank of the destination: one message per
///   interval; that scatters them over its grid, whose ranks along tp then exchange what they got
///   (scatter and all-gather, the broadcast of long messages).
/// - gather-scatter, up to three hops: all ranks send to `hub`, which scatters to the ranks of the
///   destination, and these exchange as above.
///
/// REQUIRES: intervals name sources and destinations; groups have as many ranks as their grids.
/// Cost: O(intervals x ranks of source and destination), for tp above 1 times tp.
std::vector<RankMessage> route_messages(Route route, std::span<const RankGroup> sources,
                                        std::span<const RankGroup> destinations,
                                        std::span<const RowInterval> intervals, DeviceSlot hub);

/// Milliseconds of these messages: each hop takes as long as the busiest link of a device, of each
/// kind, needs for what it sends or for what it receives. `rows_ms`: as `LinkCost`, of rows.
double route_ms(std::span<const RankMessage> messages, const LinkCost& rows_ms);

}  // namespace troupe::scheduler
