#include "actors/link/system.hpp"

#include <algorithm>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <chrono>
#include <csignal>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include "actors/link/heartbeat.hpp"
#include "actors/link/tls_doorman.hpp"
#include "actors/link/tls_scribe.hpp"

namespace troupe::actors {

SystemConfig::SystemConfig() {
  load<caf::io::middleman>();
  add_messages(*this);
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", 2);
  set("middleman.workers", 0);
  set("middleman.heartbeat-interval", caf::timespan(0));
  set("middleman.app-identifiers", std::vector<std::string>{"troupe"});
}

namespace {

using Clock = std::chrono::steady_clock;

/// Between two attempts to find a supervisor that does not listen yet.
constexpr std::chrono::milliseconds kRetryInterval{200};

caf::io::network::default_multiplexer& multiplexer_of(caf::actor_system& system) {
  // CAF has no other one here: `SystemConfig` loads the default.
  return dynamic_cast<caf::io::network::default_multiplexer&>(system.middleman().backend());
}

caf::actor broker_of(caf::actor_system& system) {
  return system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
}

/// The supervisor behind a proven connection. Errors: unavailable: another protocol;
/// transport_failed: the connection ended, as when the door had to make room for others.
Result<SupervisorActor> ask_for_supervisor(caf::actor_system& system,
                                           std::unique_ptr<door::TlsSession> session,
                                           const HostPort& address, Clock::time_point deadline) {
  caf::scoped_actor self(system);
  caf::strong_actor_ptr found;
  std::set<std::string> protocol;
  caf::io::scribe_ptr scribe =
      caf::make_counted<TlsScribe>(multiplexer_of(system), std::move(session));
  // CAF takes a time that is over for no limit at all.
  if (Clock::now() >= deadline)
    return Error{Errc::timed_out, "it did not answer in time", address.text(), {}};
  self->request(broker_of(system), deadline - Clock::now(), caf::connect_atom::value,
                std::move(scribe), address.port)
      .receive(
          [&](caf::node_id&, caf::strong_actor_ptr& actor, std::set<std::string>& types) {
            found = actor;
            protocol = types;
          },
          [](const caf::error&) {});
  if (found && system.assignable(protocol, system.message_types<SupervisorActor>()))
    return caf::actor_cast<SupervisorActor>(found);
  if (!found)
    return Error{Errc::transport_failed, "who listens there left", address.text(),
                 "see what the job says"};
  return Error{Errc::unavailable, "who listens there is another build of troupe", address.text(),
               "build the same sources on every machine (troupe --version)"};
}

/// One attempt. Errors: those of `connect_to`, `shake_hands` and `ask_for_supervisor`.
Result<SupervisorActor> try_to_find(caf::actor_system& system, const HostPort& address,
                                    const door::JobKey& key, Clock::time_point deadline) {
  auto socket = door::connect_to(address, deadline);
  if (!socket.ok()) return std::move(socket).error();
  const door::TlsContext context(key, door::TlsContext::Side::client);
  auto session = door::shake_hands(context, std::move(socket).value(), address, deadline);
  if (!session.ok()) return std::move(session).error();
  return ask_for_supervisor(system, std::move(session).value(), address, deadline);
}

std::string in_seconds(double seconds) {
  std::ostringstream text;
  text << seconds << " s";
  return text.str();
}

/// Whether another attempt with the same key would end in the same way.
bool is_final(const Error& error) {
  return error.code == Errc::unavailable || error.code == Errc::invalid_argument;
}

bool is_same(const Result<door::JobKey>& now, const Result<door::JobKey>& before) {
  return now.ok() && before.ok() && now.value() == before.value();
}

}  // namespace

std::uint16_t publish(caf::actor_system& system, const SupervisorActor& supervisor,
                      door::Socket listening, const door::JobKey& key, door::Door::Tell tell) {
  caf::io::doorman_ptr doorman = caf::make_counted<TlsDoorman>(
      multiplexer_of(system), std::move(listening), key, std::move(tell));
  const std::uint16_t port = doorman->port();
  caf::anon_send(broker_of(system), caf::publish_atom::value, std::move(doorman), port,
                 caf::actor_cast<caf::strong_actor_ptr>(supervisor),
                 system.message_types<SupervisorActor>());
  return port;
}

Result<SupervisorActor> find_supervisor(caf::actor_system& system, const HostPort& address,
                                        const KeySource& key_source, double timeout_s,
                                        double attempt_s) {
  const auto deadline = Clock::now() + seconds(timeout_s);
  for (;;) {
    const auto key = key_source();
    if (!key.ok() && is_final(key.error())) return key.error();
    const auto until = std::min<Clock::time_point>(deadline, Clock::now() + seconds(attempt_s));
    auto found = key.ok() ? try_to_find(system, address, key.value(), until) : key.error();
    // A key may be the last job's; when it is still the same now, it is meant.
    if (found.ok() || (is_final(found.error()) && is_same(key_source(), key))) return found;
    const auto left = deadline - Clock::now();
    if (left <= kRetryInterval)
      return Error{
          Errc::timed_out,
          "no job let this node in within " + in_seconds(timeout_s) +
              "; the last attempt: " + found.error().message,
          address.text(),
          found.error().fix.empty()
              ? "start `troupe train` first; check the address, and that this machine reaches it"
              : found.error().fix};
    std::this_thread::sleep_for(kRetryInterval);
  }
}

void look_up(caf::actor_system& system, const caf::node_id& process, caf::atom_value name,
             std::chrono::seconds patience,
             std::function<void(const caf::strong_actor_ptr&)> found) {
  system.spawn([found = std::move(found), process, name, patience,
                broker = broker_of(system)](caf::event_based_actor* self) {
    // As CAF's own `remote_lookup`, which blocks.
    self->request(broker, patience, caf::forward_atom::value, process, caf::atom("ConfigServ"),
                  caf::make_message(caf::get_atom::value, name))
        .then([found](const caf::strong_actor_ptr& actor) { found(actor); },
              [found](const caf::error&) { found(nullptr); });
  });
}

std::string signal_name(int signal) {
  return signal == SIGINT   ? "Ctrl-C"
         : signal == SIGHUP ? "SIGHUP (the terminal closed)"
                            : "SIGTERM";
}

std::string join_command(const std::string& address, const std::string& key_file) {
  const auto parsed = parse_host_port(address);
  const bool is_far = !parsed.ok() || !parsed.value().is_loopback();
  const std::string key = key_file.empty() ? "FILE" : key_file;
  return "troupe node --join " + address + (is_far || !key_file.empty() ? " --key " + key : "");
}

}  // namespace troupe::actors
