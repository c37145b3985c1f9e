// Over which link the ranks of two grids exchange, and how much each of them sends.
//
// Pure.

#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::scheduler {

enum class LinkClass : std::uint8_t {
  device,   ///< Same devices: nothing leaves them.
  node,     ///< Inside a node.
  network,  ///< Between nodes.
};

/// Milliseconds that so many elements take over a free link of a kind, latency included.
using LinkCost = std::function<double(LinkClass link, double elements)>;

/// The link between two devices.
inline LinkClass link_class(const DeviceSlot& from, const DeviceSlot& to) {
  if (from == to) return LinkClass::device;
  return from.node == to.node ? LinkClass::node : LinkClass::network;
}

/// The link between two lists of devices, each of one node. REQUIRES: neither is empty.
LinkClass link_class(const ParallelPlan& plan, std::span<const DeviceId> from,
                     std::span<const DeviceId> to);

/// The link for rows that go from one stage to another. On the same devices they stay where they
/// are, unless ranks along cp have parts of them and the other stage's need others.
LinkClass link_class(const ParallelPlan& plan, const Stage& from, const Stage& to);

/// What a rank sends of a message's rows, or a rank receives where that is more, as a share of them
/// all. Ranks along tp all have, and all need, the rows of their place along cp; so each rank that
/// receives gets 1 / cp of the rows, and those that send share out what all of these need. Each
/// rank has a link of its own: grids of tp 2 on both sides send the rows twice, side by side.
double rank_share(const Parallelism& from, const Parallelism& to);

}  // namespace troupe::scheduler
