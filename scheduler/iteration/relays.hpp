// Where in the lists of actions rows are handed on that pass through a device of neither end.
//
// Pure.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "scheduler/iteration/iteration_graph.hpp"
#include "scheduler/iteration/rank_links.hpp"
#include "scheduler/iteration/task_graph.hpp"

namespace troupe::scheduler {

/// A relay, and how many of the device's tasks stand before it.
struct PlacedRelay {
  std::size_t before = 0;
  Action action;
};

/// The relays of each device that runs a list, in order.
///
/// A device does one thing after another, so a relay stands where its rows are predicted to be
/// there: behind the tasks that begin earlier. All tasks and relays then stand in one order, that
/// of the replayed times (ties: of what needs what), in which each relay is behind the task that
/// makes its rows and before the one that takes them; every list is a part of that order, so that
/// nothing waits for ever.
///
/// `messages`: those of the graph; `order`: a sound order of its tasks. `link_ms` may be empty:
/// rows then take no time. Cost: that of a replay, if there is a relay.
std::vector<std::vector<PlacedRelay>> place_relays(const ParallelPlan& plan,
                                                   const IterationGraph& graph,
                                                   std::span<const Message> messages,
                                                   const DeviceOrders& order,
                                                   const LinkCost& link_ms);

}  // namespace troupe::scheduler
