// Templates of module groups with replicas of their own, and who is there, for tests of losses and
// joins.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include "scheduler/recovery/pipeline_templates.hpp"
#include "scheduler/state/standby_holders.hpp"

namespace troupe::scheduler::testing {

/// Encoders and projectors have nine layers together, the llm six.
inline constexpr std::int32_t kEncoders = 9, kLlm = 6;

/// Templates of both groups, on single devices; layers take 3 ms, and a device holds so many.
inline TemplateSet templates(std::int64_t nodes, std::int64_t held_of_encoders,
                             std::int64_t held_of_llm, std::int64_t devices_per_node = 1) {
  TemplateSet set;
  for (const auto& [count, held] : {std::pair{kEncoders, held_of_encoders}, {kLlm, held_of_llm}}) {
    TemplateRequest request;
    request.layers.assign(static_cast<std::size_t>(count), {1, 2, Bytes{1}, {}});
    request.node_count = nodes * devices_per_node;
    request.device_memory = Bytes{held};
    request.microbatches = 4;
    set.groups.push_back(make_templates(request).value());
  }
  set.layer_ms.assign(kEncoders + kLlm, 3);
  set.microbatches = 4;
  return set;
}

/// All nodes without these.
inline std::set<NodeId> but(std::int32_t nodes, const std::set<std::int32_t>& lost) {
  std::set<NodeId> there;
  for (std::int32_t node = 0; node < nodes; ++node)
    if (!lost.contains(node)) there.insert(NodeId{node});
  return there;
}

using Nodes = std::set<std::set<std::int32_t>>;

/// On how many nodes everything is, at least.
inline std::size_t least_holders(const ParallelPlan& plan) {
  std::size_t least = plan.devices.size();
  for (const auto& holders : unit_holders(plan)) {
    std::set<NodeId> nodes;
    for (const DeviceId device : holders) nodes.insert(plan.devices[device.index()].node);
    least = std::min(least, nodes.size());
  }
  return least;
}

}  // namespace troupe::scheduler::testing
