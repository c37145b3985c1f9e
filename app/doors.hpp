// Where a job's head is reached: its port, the key to it, and its transport.

#pragma once

#include <memory>

#include "app/keys.hpp"
#include "runtime/door/listening.hpp"
#include "runtime/job/job.hpp"
#include "runtime/observe/metrics_endpoint.hpp"
#include "transport/transport.hpp"

namespace troupe::app {

/// What the head needs of its machine: a port that listens, the key to it, and room for tensors.
struct Doors {
  HostPort address;  ///< As the job says it; the port may be 0.
  door::Socket listening;
  HeadKey key;
  std::unique_ptr<transport::Transport> transport;
};

/// Opens them all; a key that was made for the job is taken away when the process leaves.
/// Errors: those of `listen_at`, `head_key` and `create_transport`.
Result<Doors> open_doors(const job::Job& job);

/// Where Prometheus finds the figures of a job; null: the job wants none.
/// Errors: unavailable: the port is taken, or the address is not of this machine.
Result<std::shared_ptr<observe::MetricsEndpoint>> open_metrics(const job::Observation& observe);

}  // namespace troupe::app
