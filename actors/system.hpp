// The actor system of a process: settings measured for a control plane, and how processes meet.

#pragma once

#include <caf/actor_system_config.hpp>
#include <string>

#include "actors/protocol.hpp"
#include "runtime/job/job.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::actors {

/// Heartbeats find stopped peers, a shared work queue answers remote requests soonest, and an
/// application id of our own keeps strangers out.
class SystemConfig : public caf::actor_system_config {
 public:
  SystemConfig(double heartbeat_interval_s, double heartbeat_timeout_s);
};

/// `HOST:PORT` taken apart.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

/// Errors: invalid_argument: no colon, an empty host, a port outside 0..65535.
Result<HostPort> parse_host_port(const std::string& text);

/// Makes the supervisor reachable. Returns the port, chosen by the system where 0 is asked for.
/// Errors: transport_failed: the address is taken or not of this machine.
Result<std::uint16_t> publish(caf::actor_system& system, const SupervisorActor& supervisor,
                              const HostPort& address);

/// Connects to a supervisor, again and again until `timeout_s` has passed.
/// Errors: timed_out: nobody answered there, with the last reason.
Result<SupervisorActor> find_supervisor(caf::actor_system& system, const HostPort& address,
                                        double timeout_s);

/// Name of this machine, for roll calls.
std::string host_name();

}  // namespace troupe::actors
