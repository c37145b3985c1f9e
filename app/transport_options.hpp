// Transport settings that follow from a job.

#pragma once

#include <cstdlib>

#include "runtime/job/job.hpp"
#include "transport/registry.hpp"

namespace troupe::app {

/// A job whose nodes are all on this machine keeps its sockets there: UCX does not encrypt.
/// Otherwise sockets are on `cluster.data_interface`, where that is given. UCX's own variables
/// UCX_TLS and UCX_NET_DEVICES come first: which network a machine should use is known on that
/// machine alone.
inline transport::TransportOptions transport_options(const job::Job& job, transport::Peer self) {
  transport::TransportOptions options;
  options.self = self;
  const bool local = job.cluster.local_nodes == job.cluster.nodes;
  if (local && job.cluster.listen.starts_with("127.")) options.ucx.net_devices = "lo";
  if (!job.cluster.data_interface.empty()) options.ucx.net_devices = job.cluster.data_interface;
  if (const char* transports = std::getenv("UCX_TLS")) options.ucx.tls = transports;
  if (const char* devices = std::getenv("UCX_NET_DEVICES")) options.ucx.net_devices = devices;
  return options;
}

}  // namespace troupe::app
