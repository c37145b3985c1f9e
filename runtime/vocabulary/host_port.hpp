// Where a process listens, as job files and command lines say it.

#pragma once

#include <cstdint>
#include <string>

#include "runtime/vocabulary/result.hpp"

namespace troupe {

/// `HOST:PORT` taken apart.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;

  /// Whether it stands for all addresses of this machine.
  bool is_any() const { return host == "0.0.0.0" || host == "*"; }

  /// Whether only this machine reaches it. Names other than `localhost` are not looked up.
  bool is_loopback() const;

  std::string text() const { return host + ":" + std::to_string(port); }
};

/// Errors: invalid_argument: no colon, an empty host, a port outside 0..65535.
Result<HostPort> parse_host_port(const std::string& text);

}  // namespace troupe
