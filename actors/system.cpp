#include "actors/system.hpp"

#include <unistd.h>

#include <caf/io/all.hpp>
#include <charconv>
#include <chrono>
#include <thread>

namespace troupe::actors {

SystemConfig::SystemConfig(double heartbeat_interval_s, double heartbeat_timeout_s) {
  load<caf::io::middleman>();
  add_messages(*this);
  const auto nanoseconds = [](double seconds) {
    return caf::timespan(static_cast<std::int64_t>(seconds * 1e9));
  };
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", 2);
  set("middleman.workers", 0);
  set("middleman.heartbeat-interval", nanoseconds(heartbeat_interval_s));
  set("middleman.connection-timeout", nanoseconds(heartbeat_timeout_s));
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

Result<std::uint16_t> publish(caf::actor_system& system, const SupervisorActor& supervisor,
                              const HostPort& address) {
  const bool any = address.host == "0.0.0.0" || address.host == "*";
  auto port =
      system.middleman().publish(supervisor, address.port, any ? nullptr : address.host.c_str());
  if (!port)
    return Error{Errc::transport_failed,
                 "cannot listen on " + address.host + ":" + std::to_string(address.port),
                 "cluster.listen",
                 "use an address of this machine and a free port; port 0 takes any"};
  return *port;
}

Result<SupervisorActor> find_supervisor(caf::actor_system& system, const HostPort& address,
                                        double timeout_s) {
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1000));
  for (;;) {
    auto found = system.middleman().remote_actor<SupervisorActor>(address.host, address.port);
    if (found) return *found;
    if (std::chrono::steady_clock::now() > deadline)
      return Error{
          Errc::timed_out,
          "no supervisor answered within " + std::to_string(static_cast<int>(timeout_s)) + " s",
          address.host + ":" + std::to_string(address.port),
          "start `troupe train` first; check the address, and that this machine reaches it"};
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown-host";
}

}  // namespace troupe::actors
