// Sockets that listen or connect.

#pragma once

#include <chrono>
#include <cstdint>

#include "runtime/vocabulary/host_port.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::door {

/// A socket of this process, closed at its end.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept : descriptor_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;

  int get() const { return descriptor_; }
  /// Leaves it to the caller.
  int release();

 private:
  int descriptor_ = -1;
};

/// A socket that listens there, without blocking, also where connections of a job that ended a
/// moment ago still linger at the port; port 0: any free one.
/// Errors: transport_failed: the port is taken, the address is not of this machine, the host is
/// unknown, or the port is privileged; each with its own words and fix.
Result<Socket> listen_at(const HostPort& address);

/// The port that a socket has on this side.
std::uint16_t port_of(const Socket& socket);

/// A connection to `address`, without blocking from here on. Errors: transport_failed, with the
/// system's reason; timed_out: nobody answered by `deadline`.
Result<Socket> connect_to(const HostPort& address, std::chrono::steady_clock::time_point deadline);

/// Waits until a socket can be read (or written), or until `deadline`; false then.
bool wait_for(const Socket& socket, bool write, std::chrono::steady_clock::time_point deadline);

}  // namespace troupe::door
