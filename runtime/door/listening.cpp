#include "runtime/door/listening.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace troupe::door {

namespace {

using Clock = std::chrono::steady_clock;
using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// Connections that wait to be accepted; the door takes them within milliseconds.
constexpr int kBacklog = 128;

Error cannot_listen(const HostPort& address, const std::string& why, const std::string& fix) {
  return {Errc::transport_failed, "cannot listen on " + address.text() + ": " + why,
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

/// What the system knows under an address; `code` of getaddrinfo where it is nothing.
Addresses look_up(const HostPort& address, int flags, int& code) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags;
  code = getaddrinfo(address.is_any() ? nullptr : address.host.c_str(),
                     std::to_string(address.port).c_str(), &wanted, &found);
  return {code == 0 ? found : nullptr, &freeaddrinfo};
}

Socket open_socket(const addrinfo& one) {
  return Socket(
      socket(one.ai_family, one.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, one.ai_protocol));
}

void set_option(const Socket& socket, int level, int option) {
  const int yes = 1;
  setsockopt(socket.get(), level, option, &yes, sizeof yes);
}

/// Of a connection under way: 0 when it stands by `deadline`, else the system's code.
int finish_connecting(const Socket& socket, Clock::time_point deadline) {
  if (!wait_for(socket, /*write=*/true, deadline)) return ETIMEDOUT;
  int code = 0;
  socklen_t size = sizeof code;
  return getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &size) == 0 ? code : errno;
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

int Socket::release() { return std::exchange(descriptor_, -1); }

Result<Socket> listen_at(const HostPort& address) {
  int unknown = 0;
  const auto list = look_up(address, AI_PASSIVE, unknown);
  if (unknown != 0)
    return cannot_listen(address,
                         "the host is unknown (" + std::string(gai_strerror(unknown)) + ")",
                         "use an address of this machine, such as 127.0.0.1 or 0.0.0.0");
  int code = EAFNOSUPPORT;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    Socket socket = open_socket(*one);
    if (socket.get() < 0) continue;
    // Ends of connections that linger are no reason to refuse, a listener is.
    set_option(socket, SOL_SOCKET, SO_REUSEADDR);
    if (bind(socket.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        listen(socket.get(), kBacklog) == 0)
      return socket;
    code = errno;
  }
  return cannot_bind(address, code);
}

std::uint16_t port_of(const Socket& socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

Result<Socket> connect_to(const HostPort& address, Clock::time_point deadline) {
  int code = 0;
  const auto list = look_up(address, 0, code);
  const auto failed = [&](const std::string& why) {
    return Error{Errc::transport_failed, "cannot reach " + address.text() + ": " + why,
                 address.text(), "check the address, and that this machine reaches it"};
  };
  if (code != 0) return failed("the host is unknown (" + std::string(gai_strerror(code)) + ")");
  code = EAFNOSUPPORT;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    Socket socket = open_socket(*one);
    if (socket.get() < 0) continue;
    code = connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0 ? 0 : errno;
    if (code == EINPROGRESS) code = finish_connecting(socket, deadline);
    if (code != 0) continue;
    set_option(socket, IPPROTO_TCP, TCP_NODELAY);
    return socket;
  }
  Error error = failed(std::strerror(code));
  if (code == ETIMEDOUT) error.code = Errc::timed_out;
  return error;
}

bool wait_for(const Socket& socket, bool write, Clock::time_point deadline) {
  pollfd watched{socket.get(), static_cast<short>(write ? POLLOUT : POLLIN), 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const int ready =
        poll(&watched, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000)));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= deadline) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace troupe::door
