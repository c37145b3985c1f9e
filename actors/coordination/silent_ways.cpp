#include "actors/coordination/silent_ways.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace troupe::actors {

namespace {

/// Whether a device has come past the action that sends the message.
bool is_sent(const IterationPlan& iteration, const engine::AwaitedMessage& message,
             const engine::LongWait& sender) {
  const auto& list = iteration.actions[message.from.index()];
  const Action& wanted = message.sent_in;
  const auto sends = std::find_if(list.begin(), list.end(), [&](const Action& action) {
    return action.kind == wanted.kind && action.message == wanted.message &&
           action.group == wanted.group && action.delivery == wanted.delivery;
  });
  return sends != list.end() && std::distance(list.begin(), sends) < sender.next_action;
}

}  // namespace

std::vector<SilentWay> silent_ways(const ParallelPlan& plan, const IterationPlan& iteration,
                                   std::span<const engine::LongWait> waits, double bound_s) {
  std::map<DeviceId, const engine::LongWait*> by_device;
  for (const engine::LongWait& wait : waits)
    if (wait.step == iteration.step && wait.epoch_number == iteration.epoch_number)
      by_device[wait.device] = &wait;
  const auto node_of = [&](DeviceId device) { return plan.devices[device.index()].node; };
  std::vector<SilentWay> ways;
  for (const auto& [device, wait] : by_device)
    for (const engine::AwaitedMessage& message : wait->awaited) {
      const auto sender = by_device.find(message.from);
      if (sender == by_device.end() || !is_sent(iteration, message, *sender->second)) continue;
      ways.push_back({node_of(message.from), node_of(device),
                      std::min(wait->seconds, sender->second->seconds)});
    }
  return due_ways(ways, bound_s);
}

std::vector<SilentWay> due_ways(std::span<const SilentWay> known, double bound_s) {
  std::map<std::pair<NodeId, NodeId>, SilentWay> longest;
  for (const SilentWay& way : known) {
    SilentWay& kept = longest[std::minmax(way.from, way.to)];
    if (way.from != way.to && way.seconds > kept.seconds) kept = way;
  }
  std::vector<SilentWay> ways;
  for (const auto& [ends, way] : longest)
    if (2 * way.seconds >= bound_s) ways.push_back(way);
  const auto is_due = [bound_s](const SilentWay& way) { return way.seconds >= bound_s; };
  if (std::none_of(ways.begin(), ways.end(), is_due)) ways.clear();
  return ways;
}

}  // namespace troupe::actors
