// The actor system of a process: settings measured for a control plane, and how processes meet.

#pragma once

#include <caf/actor_system_config.hpp>
#include <caf/fwd.hpp>
#include <chrono>
#include <functional>
#include <string>

#include "actors/link/protocol.hpp"
#include "runtime/door/door.hpp"
#include "runtime/job/job.hpp"
#include "runtime/vocabulary/host_port.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::actors {

/// A shared work queue answers remote requests soonest; an application id of our own keeps
/// strangers out; signs of life are the engine's own (`heartbeat.hpp`), not CAF's.
class SystemConfig : public caf::actor_system_config {
 public:
  SystemConfig();
};

/// Makes the supervisor reachable at a socket that listens, for processes that show the key; `tell`
/// takes lines about those that do not. Returns the port.
std::uint16_t publish(caf::actor_system& system, const SupervisorActor& supervisor,
                      door::Socket listening, const door::JobKey& key, door::Door::Tell tell);

/// Where a node has the job's key from; asked at every attempt, because the key of a job that does
/// not run yet may come with it. Errors: not_found: not yet; others are final.
using KeySource = std::function<Result<door::JobKey>()>;

/// Connects to a supervisor and shows the key, again and again until `timeout_s` has passed. One
/// attempt has no more than `attempt_s`, so that whoever lets in and then says nothing (a port that
/// another program had for a moment) costs no node its job. Errors: timed_out: nobody let this
/// process in, with the last attempt's reason; unavailable: who did speaks another protocol;
/// invalid_argument: another key there, or the key source's.
Result<SupervisorActor> find_supervisor(caf::actor_system& system, const HostPort& address,
                                        const KeySource& key_source, double timeout_s,
                                        double attempt_s = 10);

/// Asks a process that this one is connected to for its actor of that name. `found` is called once,
/// by a thread of the system; null: it has none, or did not answer for so long.
void look_up(caf::actor_system& system, const caf::node_id& process, caf::atom_value name,
             std::chrono::seconds patience,
             std::function<void(const caf::strong_actor_ptr&)> found);

/// How messages call a signal that ends a process: `Ctrl-C`, `SIGTERM`.
std::string signal_name(int signal);

/// What joins a job at this address, for people: with `--key` where the job asks for one.
/// `key_file`: the job's; empty: it names none.
std::string join_command(const std::string& address, const std::string& key_file);

}  // namespace troupe::actors
