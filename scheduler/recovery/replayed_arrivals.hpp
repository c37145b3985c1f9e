// Nodes on their way, as a replayed job knows them at a moment of its time: who still opens its
// data, and when it is there by what others took. As the supervisor of a running job asks it
// (actors/supervisor/supervisor_wait_choice.hpp), of whom no more is known either.
//
// Not thread-safe; a replay has one of its own.

#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "scheduler/recovery/failure_events.hpp"
#include "scheduler/recovery/wait_choice.hpp"

namespace troupe::scheduler {

/// A wait for such a node.
struct ReplayedWait {
  double begun_ms = 0;
  double ready_ms = 0;  ///< From then until it is ready, by what others took; > 0.
  double over_ms = 0;   ///< When it is over by itself: the node is late by then, or gone.
};

class ReplayedArrivals {
 public:
  /// `all` outlives it. REQUIRES: `until_ms` ascends.
  explicit ReplayedArrivals(const std::vector<NodeArrival>& all) : all_(all) {}

  /// A wait that begins at `now_ms`: of those that are on their way then, and take no longer than
  /// others did, for the one that was welcomed first. None: there is nobody. REQUIRES: `now_ms`
  /// never goes back.
  std::optional<ReplayedWait> wait_from(double now_ms);

 private:
  const std::vector<NodeArrival>& all_;
  std::size_t passed_ = 0;  // Of them: ready, or gone.
  JoinTimes joins_;
};

}  // namespace troupe::scheduler
