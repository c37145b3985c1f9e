// How many devices the replicas of a module group may have, and which group gets devices without
// work.
//
// Pure, on numbers alone; thread-safe. Helper of group_layouts.cpp.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "scheduler/recovery/reconfigure.hpp"

namespace troupe::scheduler {

/// Devices of a replica: as many as the templates of its group have.
struct ReplicaSizes {
  std::int64_t least = 1;  ///< >= 1.
  std::int64_t most = 1;   ///< >= least; there is a template for each number between.

  /// The most of `devices` (>= 0) that replicas of these sizes use; 0: too few for one. k replicas
  /// use any number from k x least to k x most, so the largest k reaches furthest.
  std::int64_t used_of(std::int64_t devices) const;
};

/// What a module group has, and what it has to do.
struct GroupNeed {
  ReplicaSizes sizes;
  std::int64_t devices = 0;  ///< That work for it; >= 0.
  double work_ms = 1;        ///< Of a microbatch in all its layers; >= 0.
};

/// Deals `count` (>= 0) devices without work to groups, and says how many each gets: one device
/// after the other goes to a group that has too few for a replica, else to the one with most work
/// per device; the first of equals. Where a group's replicas could not use all that it has then,
/// as few as possible go from one group to another, so that each uses all.
///
/// So two groups use all wherever there is a way to. Where no such pair is found, they stay as
/// dealt. Cost: O(count x groups^3).
std::vector<std::int64_t> deal_devices(const std::vector<GroupNeed>& groups, std::int64_t count);

/// Cuts down replicas with more devices than any template has: what is beyond goes to replicas with
/// room, then to new ones, which take what they lack from the tails of the largest. `is_kept` names
/// replicas that stay, however large. Devices are sorted, then replicas by (length, first device).
///
/// REQUIRES: `sizes.used_of` all devices is all of them; else some are in no replica.
/// Cost: O(devices x replicas) where one is too large, else O(replicas).
void fit_replicas(std::vector<RankList>& replicas, const ReplicaSizes& sizes,
                  const std::function<bool(const RankList&)>& is_kept);

}  // namespace troupe::scheduler
