// Transport settings that follow from a job.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "runtime/job/job.hpp"
#include "runtime/vocabulary/host_port.hpp"
#include "transport/registry.hpp"

namespace troupe::app {

/// A way that does not come up costs one of its ends, as any other on which nothing comes: after
/// twice the silence of a node that is lost. Less than 5 s would count the system's own tries.
inline std::chrono::milliseconds connect_timeout(const job::Cluster& cluster) {
  constexpr double kLeastS = 5;
  const std::chrono::duration<double> bound(std::max(kLeastS, 2 * cluster.heartbeat_timeout_s));
  return std::chrono::duration_cast<std::chrono::milliseconds>(bound);
}

/// Where a job listens on the loopback, all its nodes are on this machine, whoever starts them, and
/// sockets for tensors stay on it, too: UCX does not encrypt. `cluster.data_interface` comes before
/// that, and UCX's own variables UCX_TLS and UCX_NET_DEVICES before both: which network a machine
/// should use is known on that machine alone.
inline transport::TransportOptions transport_options(const job::Job& job, transport::Peer self) {
  transport::TransportOptions options;
  options.self = self;
  if (const auto door = parse_host_port(job.cluster.listen);
      door.ok() && door.value().is_loopback())
    options.ucx.net_devices = "lo";
  if (!job.cluster.data_interface.empty()) options.ucx.net_devices = job.cluster.data_interface;
  if (const char* transports = std::getenv("UCX_TLS")) options.ucx.tls = transports;
  if (const char* devices = std::getenv("UCX_NET_DEVICES")) options.ucx.net_devices = devices;
  options.ucx.connect_timeout = connect_timeout(job.cluster);
  return options;
}

}  // namespace troupe::app
