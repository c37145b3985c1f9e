#include "scheduler/cost/nccl_call.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "scheduler/iteration/rank_links.hpp"

namespace troupe::scheduler {

namespace {

constexpr auto kNode = static_cast<std::size_t>(LinkClass::node);
constexpr auto kNetwork = static_cast<std::size_t>(LinkClass::network);

/// Each holder sends so much to the next one, which for one of a node's in turn is on another node.
LinkElements along(const CallShape& shape, double elements) {
  LinkElements sent{};
  sent[kNode] = elements;
  if (shape.nodes == 1) return sent;
  sent[kNode] *= static_cast<double>(shape.most - 1) / static_cast<double>(shape.most);
  sent[kNetwork] = elements / static_cast<double>(shape.least);
  return sent;
}

CallTraffic direct_traffic(const CallShape& shape, double elements) {
  const double share = 2 * elements / static_cast<double>(shape.holders);
  CallTraffic traffic;
  traffic.elements[kNode] = share * static_cast<double>(shape.most - 1);
  traffic.elements[kNetwork] = share * static_cast<double>(shape.holders - shape.least);
  traffic.steps[shape.nodes == 1 ? kNode : kNetwork] = 2;
  return traffic;
}

CallTraffic ring_traffic(const CallShape& shape, double elements) {
  const std::int64_t steps = 2 * (shape.holders - 1);
  const std::int64_t between = shape.nodes == 1 ? 0 : std::min(2 * shape.nodes, steps);
  CallTraffic traffic;
  traffic.elements =
      along(shape, elements * static_cast<double>(steps) / static_cast<double>(shape.holders));
  traffic.steps[kNode] = static_cast<double>(steps - between);
  traffic.steps[kNetwork] = static_cast<double>(between);
  return traffic;
}

CallTraffic tree_traffic(const CallShape& shape, double elements) {
  const auto height = std::bit_width(static_cast<std::uint64_t>(shape.nodes - 1));
  CallTraffic traffic;
  traffic.elements = along(shape, 2 * elements);
  traffic.steps[kNode] = 2 * static_cast<double>(shape.most - 1);
  traffic.steps[kNetwork] = 2 * static_cast<double>(height);
  return traffic;
}

}  // namespace

CallTraffic call_traffic(CallWay way, const CallShape& shape, double elements) {
  switch (way) {
    case CallWay::direct: return direct_traffic(shape, elements);
    case CallWay::ring: return ring_traffic(shape, elements);
    case CallWay::tree: return tree_traffic(shape, elements);
  }
  return {};
}

double moving_ms(const CallTraffic& traffic, double element_bytes, const LinkSpeeds& links) {
  double bytes_ms = 0, latencies_ms = 0;
  for (std::size_t link = 0; link < links.size(); ++link) {
    if (links[link].gigabytes_per_s > 0)
      bytes_ms = std::max(
          bytes_ms, traffic.elements[link] * element_bytes / (links[link].gigabytes_per_s * 1e6));
    latencies_ms += traffic.steps[link] * links[link].latency_ms;
  }
  return bytes_ms + latencies_ms;
}

CallTraffic call_traffic(SumOrder order, const CallShape& shape, double elements,
                         double element_bytes, const LinkSpeeds& links) {
  if (order == SumOrder::nccl_chain) return call_traffic(CallWay::direct, shape, elements);
  const CallTraffic ring = call_traffic(CallWay::ring, shape, elements);
  const CallTraffic tree = call_traffic(CallWay::tree, shape, elements);
  const double ring_ms = moving_ms(ring, element_bytes, links);
  return moving_ms(tree, element_bytes, links) < ring_ms ? tree : ring;
}

}  // namespace troupe::scheduler
