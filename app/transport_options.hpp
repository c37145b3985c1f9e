// Transport settings that follow from a job.

#pragma once

#include <cstdlib>

#include "runtime/job/job.hpp"
#include "runtime/vocabulary/host_port.hpp"
#include "transport/registry.hpp"

namespace troupe::app {

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
  return options;
}

}  // namespace troupe::app
