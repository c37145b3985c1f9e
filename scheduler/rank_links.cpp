#include "scheduler/rank_links.hpp"

#include <algorithm>

namespace troupe::scheduler {

LinkClass link_class(const ParallelPlan& plan, std::span<const DeviceId> from,
                     std::span<const DeviceId> to) {
  if (std::ranges::equal(from, to)) return LinkClass::device;
  const auto node_of = [&](DeviceId device) { return plan.devices[device.index()].node; };
  return node_of(from.front()) == node_of(to.front()) ? LinkClass::node : LinkClass::network;
}

double rank_share(const Parallelism& from, const Parallelism& to) {
  const double sent = static_cast<double>(to.tp) / static_cast<double>(from.ranks());
  return std::max(sent, 1.0 / to.cp);
}

}  // namespace troupe::scheduler
