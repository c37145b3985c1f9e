// Transport settings that follow from a job.

#pragma once

#include "runtime/job/job.hpp"
#include "transport/registry.hpp"

namespace troupe::app {

/// A job whose nodes are all on this machine keeps its sockets there: UCX neither authenticates nor
/// encrypts.
inline transport::TransportOptions transport_options(const job::Job& job, transport::Peer self) {
  transport::TransportOptions options;
  options.self = self;
  const bool local = job.cluster.local_nodes == job.cluster.nodes;
  if (local && job.cluster.listen.starts_with("127.")) options.ucx.net_devices = "lo";
  return options;
}

}  // namespace troupe::app
