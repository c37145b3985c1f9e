#include "actors/system.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <caf/io/all.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <set>
#include <thread>

#include "actors/heartbeat.hpp"

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

Result<HostPort> parse_host_port(const std::string& text) {
  const auto colon = text.rfind(':');
  HostPort address;
  const char* begin = text.data() + (colon == std::string::npos ? text.size() : colon + 1);
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(begin, end, address.port);
  if (colon == std::string::npos || colon == 0 || parsed.ec != std::errc{} || parsed.ptr != end)
    return Error{
        Errc::invalid_argument, "'" + text + "' is not HOST:PORT", {}, "for example 10.0.0.1:7000"};
  address.host = text.substr(0, colon);
  return address;
}

namespace {

Error cannot_listen(const HostPort& address, const std::string& why, const std::string& fix) {
  return {Errc::transport_failed,
          "cannot listen on " + address.host + ":" + std::to_string(address.port) + ": " + why,
          "cluster.listen", fix};
}

Error cannot_bind(const HostPort& address, int code) {
  switch (code) {
    case EADDRINUSE:
      return cannot_listen(address, "another program listens there",
                           "end it (another job?), or use a free port; port 0 takes any");
    case EADDRNOTAVAIL:
      return cannot_listen(address, "this machine has no such address",
                           "use one of `ip address`, or 0.0.0.0 for all of them");
    case EACCES:
      return cannot_listen(address, "ports below 1024 are for root alone", "use a higher port");
    default:
      return cannot_listen(address, std::strerror(code),
                           "use an address of this machine and a free port; port 0 takes any");
  }
}

}  // namespace

Status check_listening(const HostPort& address) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE;
  const int unknown = getaddrinfo(address.is_any() ? nullptr : address.host.c_str(),
                                  std::to_string(address.port).c_str(), &wanted, &found);
  if (unknown != 0)
    return cannot_listen(address,
                         "the host is unknown (" + std::string(gai_strerror(unknown)) + ")",
                         "use an address of this machine, such as 127.0.0.1 or 0.0.0.0");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  int code = EAFNOSUPPORT;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const int handle = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
    if (handle < 0) continue;
    // As CAF listens: ends of connections that linger are no reason, a listener is.
    const int yes = 1;
    setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const bool bound = bind(handle, one->ai_addr, one->ai_addrlen) == 0 && listen(handle, 1) == 0;
    code = bound ? 0 : errno;
    close(handle);
    if (bound) return Done{};
  }
  return cannot_bind(address, code);
}

Result<std::uint16_t> publish(caf::actor_system& system, const SupervisorActor& supervisor,
                              const HostPort& address) {
  auto port = system.middleman().publish(
      supervisor, address.port, address.is_any() ? nullptr : address.host.c_str(), /*reuse=*/true);
  if (port) return *port;
  if (auto why = check_listening(address); !why.ok()) return std::move(why).error();
  return cannot_listen(address, "the port was taken a moment ago", "start the job again");
}

Result<SupervisorActor> find_supervisor(caf::actor_system& system, const HostPort& address,
                                        double timeout_s) {
  const std::string where = address.host + ":" + std::to_string(address.port);
  const auto deadline = std::chrono::steady_clock::now() + seconds(timeout_s);
  caf::scoped_actor self(system);
  for (;;) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= Duration{})
      return Error{
          Errc::timed_out,
          "no supervisor answered within " + std::to_string(static_cast<int>(timeout_s)) + " s",
          where, "start `troupe train` first; check the address, and that this machine reaches it"};
    caf::strong_actor_ptr found;
    std::set<std::string> protocol;
    // A request of our own, because `middleman::remote_actor` waits as long as an attempt takes.
    self->request(system.middleman().actor_handle(), left, caf::connect_atom::value, address.host,
                  address.port)
        .receive(
            [&](caf::node_id&, caf::strong_actor_ptr& actor, std::set<std::string>& types) {
              found = actor;
              protocol = types;
            },
            [](const caf::error&) {});
    if (found && system.assignable(protocol, system.message_types<SupervisorActor>()))
      return caf::actor_cast<SupervisorActor>(found);
    if (found)
      return Error{Errc::unavailable, "who listens there is another build of troupe", where,
                   "build the same sources on every machine (troupe --version)"};
    std::this_thread::sleep_for(std::min<Duration>(std::chrono::milliseconds(200), left));
  }
}

std::string signal_name(int signal) { return signal == SIGINT ? "Ctrl-C" : "SIGTERM"; }

}  // namespace troupe::actors
