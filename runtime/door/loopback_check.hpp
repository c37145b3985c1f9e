// Whether a job could let somebody in here: a connection of this process with itself.

#pragma once

#include <chrono>
#include <string>

#include "runtime/vocabulary/result.hpp"

namespace troupe::door {

/// The library behind the door, with its version: `OpenSSL 3.0.15`.
std::string tls_library();

/// Listens at a free port of the loopback, connects, and has both sides show one key; returns how
/// long that took. Blocks until `deadline` at most.
/// Errors: transport_failed: listening, connecting or the handshake failed, and which; timed_out.
Result<std::chrono::microseconds> check_loopback(std::chrono::steady_clock::time_point deadline);

}  // namespace troupe::door
