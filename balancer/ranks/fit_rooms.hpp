// A deal put right where a rank has no room for all that it was given.
//
// Post-balancing (OrchMLLM section 5.1) goes by work alone; what a rank keeps until its backward is
// bounded by its memory. Pure and deterministic.

#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "balancer/loads/first_to_finish.hpp"

namespace troupe::balancer {

/// What is dealt.
struct RoomItem {
  double work = 0;       ///< > 0.
  std::size_t slot = 0;  ///< Items of one slot are in the room of their rank together.
};

/// Which share of a rank's room an item takes: >= 0 and finite.
using RoomShare = std::function<double(std::size_t item, std::size_t rank)>;

/// An item that found no room.
struct NoRoom {
  std::size_t item = 0;
  std::size_t rank = 0;  ///< Who would be the least too full with it.
  double filled = 0;     ///< Of its room then, by all that it has of the slot; above 1.
};

/// Changes `chosen`, the rank of each item, so that no rank's items of a slot take more than its
/// room. A deal with room for all is left as it is.
///
/// Of a rank that is too full the smallest item leaves that is enough, else the largest, each to
/// the rank with room that would end first with it. Where one finds none all are packed anew: the
/// largest first, each where it leaves least room, and where there is none one of those that are
/// there makes way. Then whoever ends last hands on what lets it end sooner by 1 % at least.
///
/// Packing is a heuristic: where nearly all room is needed it may miss a deal that exists. Ties:
/// the lower item, then the lower rank. Cost: O(items that move x ranks); packed anew O(items x
/// ranks) and a bounded number of looks at who makes way.
///
/// Returns what found no room; then `chosen` is as it was.
/// `before`: loads without the items. REQUIRES: ranks of `before`.
std::optional<NoRoom> fit_rooms(std::span<const RoomItem> items, const RoomShare& share,
                                const FirstToFinish<double>& before,
                                std::vector<std::size_t>& chosen);

}  // namespace troupe::balancer
