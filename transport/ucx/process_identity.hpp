// Recognises a process of this machine, so that its end can be watched directly.
//
// Why: over shared memory UCX finds a dead peer by its keep-alive, which takes a counted process
// that was not reaped yet for alive. A process descriptor reports the end itself, at once.

#pragma once

#include <cstdint>

namespace troupe::transport {

/// Values; all zero when the system does not tell.
struct ProcessIdentity {
  std::uint64_t machine = 0;    ///< Hash of boot id and process-id namespace.
  std::uint64_t started = 0;    ///< Start time in clock ticks: tells reused ids apart.
  std::int64_t process_id = 0;  ///< In that namespace.
};

/// Identity of the calling process.
ProcessIdentity own_identity();

/// A descriptor that becomes readable when that process ends; the caller closes it. -1 when the
/// process cannot be watched from here: another machine, or the system does not allow it.
/// `has_ended` is set when it is a process of this machine that exists no more.
int open_process(const ProcessIdentity& identity, bool& has_ended);

}  // namespace troupe::transport
