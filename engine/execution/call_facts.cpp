#include "engine/execution/call_facts.hpp"

#include "engine/execution/device_place.hpp"
#include "transport/nccl/nccl_library.hpp"
#include "transport/nccl/nccl_streams.hpp"

namespace troupe::engine {

namespace {

/// Of so many devices of the job, those that are places of their own.
std::int32_t places_of_their_own(const std::string& device, std::int32_t wanted) {
  std::int32_t count = 0;
  while (count < wanted) {
    const auto place = find_place(device, count);
    if (!place.ok() || place.value().index() != count) break;
    ++count;
  }
  return count;
}

}  // namespace

scheduler::CallFacts call_facts(const job::Cluster& cluster) {
  const bool on_host = cluster.device == "cpu";
  scheduler::CallFacts facts;
  facts.device = cluster.device;
  facts.nodes_elsewhere = cluster.nodes - cluster.local_nodes;
  facts.devices = facts.devices_there = cluster.local_nodes * cluster.devices_per_node;
  facts.over_host = !on_host;
  facts.has_streams =
      cluster.device == "cuda" || static_cast<bool>(transport::find_nccl_streams(cluster.device));
  if (!facts.has_streams) return facts;
  if (const auto library = transport::NcclLibrary::load(); !library.ok())
    facts.why_no_library = library.error().message;
  // Devices of a host have no memory that only one of them could be in.
  if (!on_host) facts.devices_there = places_of_their_own(cluster.device, facts.devices);
  return facts;
}

}  // namespace troupe::engine
