#include "scheduler/iteration/own_schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <utility>

#include "runtime/vocabulary/index.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::scheduler {

namespace {

Error blamed(const OwnSchedule& schedule, const std::string& what, Errc code) {
  return {code, "schedule '" + schedule.name + "' " + what, "scheduler.schedule",
          code == Errc::infeasible ? "raise scheduler.max_in_flight, or run fewer tasks ahead"
                                   : "correct the plug-in, or choose another schedule"};
}

std::string name_of(const Task& task) {
  constexpr const char* kKinds[] = {"forward", "backward", "backward_input", "backward_weight"};
  return std::string(kKinds[static_cast<std::size_t>(task.kind)]) + " of microbatch " +
         std::to_string(task.microbatch) + ", part " + std::to_string(task.part) + ", on stage " +
         std::to_string(task.stage);
}

/// What is wrong with these orders; empty where each task stands once on each of its devices.
std::string fault_of(const TaskGraph& graph, const DeviceOrders& orders) {
  const auto devices = at(graph.device_count());
  if (orders.size() != devices)
    return "orders " + std::to_string(orders.size()) + " devices, where there are " +
           std::to_string(devices);
  for (std::size_t device = 0; device < devices; ++device) {
    const auto takes = [&](std::int32_t task) {
      const StageSpec& stage = graph.stage_of(task);
      const auto own = static_cast<std::int32_t>(device);
      return stage.device == own || std::ranges::find(stage.others, own) != stage.others.end();
    };
    const std::string where = " on device " + std::to_string(device);
    std::vector<char> seen(graph.tasks.size(), 0);
    for (const std::int32_t task : orders[device]) {
      if (task < 0 || at(task) >= graph.tasks.size())
        return "has task " + std::to_string(task) + where + ", of " +
               std::to_string(graph.tasks.size());
      if (!takes(task)) return "has " + name_of(graph.tasks[at(task)]) + where + ", not its own";
      if (seen[at(task)]++ != 0) return "has " + name_of(graph.tasks[at(task)]) + " twice" + where;
    }
    for (std::size_t task = 0; task < graph.tasks.size(); ++task)
      if (seen[task] == 0 && takes(static_cast<std::int32_t>(task)))
        return "leaves out " + name_of(graph.tasks[task]) + where;
  }
  return {};
}

}  // namespace

DeviceOrders order_devices(const TaskGraph& graph, std::span<const std::int32_t> wished) {
  constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> place(graph.tasks.size(), kNowhere);
  for (std::size_t i = 0; i < wished.size(); ++i)
    if (wished[i] >= 0 && at(wished[i]) < place.size()) place[at(wished[i])] = i;

  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;  // Places.
  std::vector<std::int32_t> needs;
  const auto settle = [&](std::size_t task) {
    if (needs[task] == 0 && place[task] != kNowhere) ready.push(place[task]);
  };
  for (std::size_t task = 0; task < graph.tasks.size(); ++task) {
    needs.push_back(graph.needs_count(static_cast<std::int32_t>(task)));
    settle(task);
  }
  DeviceOrders orders(at(graph.device_count()));
  while (!ready.empty()) {
    const std::int32_t task = wished[ready.top()];
    ready.pop();
    const StageSpec& stage = graph.stage_of(task);
    orders[at(stage.device)].push_back(task);
    for (const auto device : stage.others) orders[at(device)].push_back(task);
    for (const auto& user : graph.users(task)) {
      --needs[at(user.task)];
      settle(at(user.task));
    }
  }
  return orders;
}

Result<Timeline> run_own(const TaskGraph& graph, const OwnSchedule& schedule,
                         const std::vector<std::int32_t>& max_in_flight,
                         const RefuseBound& refuse) {
  auto orders =
      call_guarded(Errc::invalid_argument, [&] { return schedule.order(graph, max_in_flight); });
  if (!orders.ok()) {
    Error error = orders.error();
    error.message = "schedule '" + schedule.name + "': " + error.message;
    if (error.where.empty()) error.where = "scheduler.schedule";
    if (error.fix.empty()) error.fix = "correct the plug-in, or choose another schedule";
    return error;
  }
  if (const auto fault = fault_of(graph, orders.value()); !fault.empty())
    return blamed(schedule, fault, Errc::invalid_argument);
  auto done = replay(graph, orders.value());
  if (!done.stuck.empty())
    return blamed(schedule,
                  "waits for ever: " + name_of(graph.tasks[at(done.stuck.front())]) +
                      " needs what stands behind it, or behind another one that waits",
                  Errc::invalid_argument);
  const auto& peaks = done.timeline.peak_in_flight;
  for (std::size_t stage = 0; stage < std::min(peaks.size(), max_in_flight.size()); ++stage)
    if (max_in_flight[stage] > 0 && peaks[stage] > max_in_flight[stage]) {
      Error error =
          blamed(schedule,
                 "has " + std::to_string(peaks[stage]) + " microbatches in flight on stage " +
                     std::to_string(stage) + ", where at most " +
                     std::to_string(max_in_flight[stage]) + " have room",
                 Errc::infeasible);
      if (!refuse) return error;
      Error known = refuse(static_cast<std::int32_t>(stage), peaks[stage]);
      known.message = error.message + ": " + known.message;
      known.fix += ", or let the plug-in run fewer tasks ahead";
      return known;
    }
  return std::move(done.timeline);
}

}  // namespace troupe::scheduler
