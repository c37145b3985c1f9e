// The actor system of a process: settings measured for a control plane, and how processes meet.

#pragma once

#include <caf/actor_system_config.hpp>
#include <string>

#include "actors/protocol.hpp"
#include "runtime/job/job.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::actors {

/// A shared work queue answers remote requests soonest; an application id of our own keeps
/// strangers out; signs of life are the engine's own (`heartbeat.hpp`), not CAF's.
class SystemConfig : public caf::actor_system_config {
 public:
  SystemConfig();
};

/// `HOST:PORT` taken apart.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;

  /// Whether it stands for all addresses of this machine.
  bool is_any() const { return host == "0.0.0.0" || host == "*"; }
};

/// Errors: invalid_argument: no colon, an empty host, a port outside 0..65535.
Result<HostPort> parse_host_port(const std::string& text);

/// Whether this process could listen there: binds, and lets go again.
/// Errors: transport_failed: the port is taken, the address is not of this machine, the host is
/// unknown, or the port is privileged; each with its own words and fix.
Status check_listening(const HostPort& address);

/// Makes the supervisor reachable, also where connections of a job that ended a moment ago still
/// linger at the port. Returns the port, chosen by the system where 0 is asked for.
/// Errors: as `check_listening`.
Result<std::uint16_t> publish(caf::actor_system& system, const SupervisorActor& supervisor,
                              const HostPort& address);

/// Connects to a supervisor, again and again until `timeout_s` has passed. Where an attempt is
/// still under way then, the actor system cannot be destroyed before it ends (some 10 s). Errors:
/// timed_out: nobody answered there; unavailable: who answered speaks another protocol.
Result<SupervisorActor> find_supervisor(caf::actor_system& system, const HostPort& address,
                                        double timeout_s);

/// How messages call a signal: `Ctrl-C`, `SIGTERM`.
std::string signal_name(int signal);

}  // namespace troupe::actors
