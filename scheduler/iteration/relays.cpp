#include "scheduler/iteration/relays.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/list_schedule.hpp"
#include "scheduler/iteration/message_routes.hpp"

namespace troupe::scheduler {

namespace {

/// All tasks by begin, each behind what it needs and what stands before it on its devices.
std::vector<std::int32_t> global_order(const TaskGraph& graph, const DeviceOrders& order,
                                       const std::vector<double>& begin_ms) {
  std::vector<std::vector<std::int32_t>> after(graph.tasks.size());
  std::vector<std::int32_t> left(graph.tasks.size());
  const auto follows = [&](std::int32_t task, std::int32_t needs) {
    after[at(needs)].push_back(task);
    ++left[at(task)];
  };
  for (const Dependency& dependency : graph.dependencies)
    follows(dependency.task, dependency.needs);
  for (const auto& list : order)
    for (std::size_t i = 1; i < list.size(); ++i) follows(list[i], list[i - 1]);
  using Entry = std::pair<double, std::int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (std::size_t t = 0; t < left.size(); ++t)
    if (left[t] == 0) ready.emplace(begin_ms[t], static_cast<std::int32_t>(t));
  std::vector<std::int32_t> sorted;
  while (!ready.empty()) {
    const std::int32_t task = ready.top().second;
    ready.pop();
    sorted.push_back(task);
    for (const auto next : after[at(task)])
      if (--left[at(next)] == 0) ready.emplace(begin_ms[at(next)], next);
  }
  return sorted;
}

/// The task that takes each message: its rows, or its gradient; -1: none does.
std::vector<std::int32_t> takers(const IterationGraph& graph, std::size_t messages, bool gradient) {
  std::vector<std::int32_t> taker(messages, -1);
  for (std::size_t t = 0; t < graph.receives.size(); ++t)
    if ((graph.tasks.tasks[t].kind != TaskKind::forward) == gradient)
      for (const MessageId id : graph.receives[t]) taker[id.index()] = static_cast<std::int32_t>(t);
  return taker;
}

/// A relay in the order of all tasks: before the one at `place`, and by time among its like.
struct Timed {
  std::size_t place = 0;
  double ms = 0;
  Action action;

  bool operator<(const Timed& other) const {
    return std::tie(place, ms, action) < std::tie(other.place, other.ms, other.action);
  }
};

}  // namespace

std::vector<std::vector<PlacedRelay>> place_relays(const ParallelPlan& plan,
                                                   const IterationGraph& graph,
                                                   std::span<const Message> messages,
                                                   const DeviceOrders& order,
                                                   const LinkCost& link_ms) {
  std::vector<std::vector<PlacedRelay>> placed(plan.devices.size());
  if (std::none_of(messages.begin(), messages.end(),
                   [](const Message& message) { return message.relay.valid(); }))
    return placed;
  const Timeline times = replay(graph.tasks, order).timeline;
  const auto sorted = global_order(graph.tasks, order, times.begin_ms);
  std::vector<std::size_t> place_of(sorted.size());
  for (std::size_t i = 0; i < sorted.size(); ++i) place_of[at(sorted[i])] = i;
  const auto takes_rows = takers(graph, messages.size(), false);
  const auto takes_gradient = takers(graph, messages.size(), true);
  const auto begins_before = [&](std::int32_t task, double ms) {
    return times.begin_ms[at(task)] < ms;
  };
  std::vector<std::vector<Timed>> relays(plan.devices.size());
  for (const std::int32_t task : sorted)
    for (const MessageId id : graph.sends[at(task)]) {
      const Message& message = messages[id.index()];
      if (!message.relay.valid()) continue;
      const bool gradient = graph.tasks.tasks[at(task)].kind != TaskKind::forward;
      const RouteLegs legs = legs_of(plan, message, gradient);
      const auto elements = static_cast<double>(message.rows * message.width);
      const double there_ms =
          times.end_ms[at(task)] + (link_ms ? legs.ms(link_ms, elements, 0, legs.relayed) : 0);
      const auto first = std::lower_bound(sorted.begin(), sorted.end(), there_ms, begins_before);
      // Wherever times put it, whoever planned them: behind who makes the rows, before who takes
      // them.
      const auto by_time = static_cast<std::size_t>(first - sorted.begin());
      const auto last = place_of[at((gradient ? takes_gradient : takes_rows)[id.index()])];
      Timed relay;
      relay.place = std::min(std::max(by_time, place_of[at(task)] + 1), last);
      relay.ms = there_ms;
      relay.action.kind = gradient ? ActionKind::relay_gradient : ActionKind::relay;
      relay.action.message = id;
      relays[plan.lead_of(message.relay).index()].push_back(relay);
    }
  for (std::size_t d = 0; d < order.size(); ++d) {
    std::sort(relays[d].begin(), relays[d].end());
    std::size_t before = 0;
    for (const Timed& relay : relays[d]) {
      while (before < order[d].size() && place_of[at(order[d][before])] < relay.place) ++before;
      placed[d].push_back({before, relay.action});
    }
  }
  return placed;
}

}  // namespace troupe::scheduler
