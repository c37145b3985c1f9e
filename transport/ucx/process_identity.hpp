// Recognises a process of this machine: its end can be watched directly, and shared memory reaches
// it.
//
// Why watch: over shared memory UCX finds a dead peer by its keep-alive, which takes a counted
// process that was not reaped yet for alive. A process descriptor reports the end itself, at once.

#pragma once

#include <cstdint>

namespace troupe::transport {

/// Values; all zero when the system does not tell.
struct ProcessIdentity {
  std::uint64_t machine = 0;        ///< Hash of the boot id.
  std::uint64_t process_space = 0;  ///< Namespace of process ids.
  std::uint64_t network_space = 0;  ///< Namespace of networks.
  std::uint64_t started = 0;        ///< Start time in clock ticks: tells reused ids apart.
  std::int64_t process_id = 0;      ///< In that namespace.
};

/// Whether two processes can share UCX's queues, or what keeps them apart.
enum class Neighbours {
  yes,
  on_two_machines,       ///< Or the system does not tell.
  with_own_process_ids,  ///< UCX opens a queue through its owner's process id.
  with_networks_apart,   ///< UCX wakes a reader through a socket that only its own network
                         ///< namespace sees: a message would wait for the reader's next look.
};

/// Symmetric. Cost: constant.
Neighbours neighbours(const ProcessIdentity& one, const ProcessIdentity& other);

/// Identity of the calling process.
ProcessIdentity own_identity();

/// A descriptor that becomes readable when that process ends; the caller closes it. -1 when the
/// process cannot be watched from here: another machine, or the system does not allow it.
/// `has_ended` is set when it is a process of this machine that exists no more.
int open_process(const ProcessIdentity& identity, bool& has_ended);

}  // namespace troupe::transport
