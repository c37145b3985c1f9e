// What the machine must offer before UCX starts, and what it must not inherit to children.

#pragma once

#include <cstdint>
#include <set>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::transport {

/// What /dev/shm must have free before a node starts: a worker's queues take about 5 MiB, and each
/// large message in flight some more.
inline constexpr Bytes kSharedMemoryMin{std::int64_t{32} << 20};

/// What so many processes of one machine, all connected with each other, take of /dev/shm, and
/// never less than `kSharedMemoryMin`. Measured: 5 processes take 80.6 MiB.
Bytes shared_memory_of(std::int64_t processes);

/// Whether `folder` with so much `free` has room for a node's queues. Pure.
/// Errors: unavailable: it has less than `kSharedMemoryMin`.
Status check_room(const char* folder, Bytes free);

/// UCX fails late and with a bare "out of memory" when /dev/shm is small, as it is in containers.
/// Errors: unavailable: /dev/shm has too little room for the queues between nodes.
Status check_shared_memory(const char* folder = "/dev/shm");

/// Descriptors that are open in this process.
std::set<int> open_descriptors();

/// Sets CLOEXEC on those that were not open `before`: UCX leaves about ten without it, which would
/// keep sockets and shared memory alive in every child.
void close_new_descriptors_on_exec(const std::set<int>& before);

}  // namespace troupe::transport
