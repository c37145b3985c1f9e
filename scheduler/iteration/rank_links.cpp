#include "scheduler/iteration/rank_links.hpp"

#include <algorithm>

namespace troupe::scheduler {

namespace {

LinkClass between(const ParallelPlan& plan, DeviceId from, DeviceId to) {
  return plan.devices[from.index()].node == plan.devices[to.index()].node ? LinkClass::node
                                                                          : LinkClass::network;
}

}  // namespace

LinkClass link_class(const ParallelPlan& plan, std::span<const DeviceId> from,
                     std::span<const DeviceId> to) {
  if (std::ranges::equal(from, to)) return LinkClass::device;
  return between(plan, from.front(), to.front());
}

LinkClass link_class(const ParallelPlan& plan, const Stage& from, const Stage& to) {
  const bool has_all = from.grid.cp == 1 || from.grid == to.grid;
  if (has_all && from.devices == to.devices) return LinkClass::device;
  return between(plan, from.devices.front(), to.devices.front());
}

double rank_share(const Parallelism& from, const Parallelism& to) {
  const double sent = static_cast<double>(to.tp) / static_cast<double>(from.ranks());
  return std::max(sent, 1.0 / to.cp);
}

}  // namespace troupe::scheduler
