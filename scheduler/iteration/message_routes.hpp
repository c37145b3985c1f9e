// The route that the messages of each boundary take, and the legs of a message's way.
//
// Pure. The one place that chooses routes; planner, simulator and engine read the messages.

#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "scheduler/iteration/rank_links.hpp"

namespace troupe::scheduler {

/// How routes are chosen.
struct RouteRules {
  std::optional<Route> pin;  ///< Of all boundaries; none: the one that takes least.
  LinkCost link_ms;          ///< Empty: nothing is predicted, and all takes the same.
};

/// Gives every message between two module groups its route, and its relay where rows pass through a
/// device of neither end. All messages of a boundary (a module and the group that takes its rows)
/// take the same one: the pin, or that of the least predicted time (`route_ms` of all rows of the
/// iteration); ties: the first in the order of `Route`.
///
/// Gathered rows go through the first device of the stage that makes them in the first replica of
/// its group in the same pipeline. Rows that stay on their devices keep `Route::direct`.
///
/// Cost: O(messages log messages), and for a prediction ranks of both ends for each pair of stages.
std::vector<BoundaryRoute> choose_routes(const ParallelPlan& plan, std::span<Message> messages,
                                         const RouteRules& rules);

/// A transfer that a message's rows take on their way.
struct RouteLeg {
  LinkClass link = LinkClass::device;
  double share = 0;  ///< Of the rows, on the busiest rank's link.
};

/// The legs one after the other.
struct RouteLegs {
  std::array<RouteLeg, 4> legs;
  std::size_t count = 0;
  std::size_t crossing = 0;  ///< The one that keeps the sender's own link busy; others are waits.
  std::size_t relayed = 0;   ///< From this one on the relay sends; `count` without one.

  /// Milliseconds of legs `begin` to `end` on free links, for so many elements of all rows.
  double ms(const LinkCost& link_ms, double elements, std::size_t begin, std::size_t end) const {
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i)
      sum += link_ms(legs[i].link, elements * legs[i].share);
    return sum;
  }
};

/// The way of a message's rows, or of their gradient.
RouteLegs legs_of(const ParallelPlan& plan, const Message& message, bool gradient);

}  // namespace troupe::scheduler
