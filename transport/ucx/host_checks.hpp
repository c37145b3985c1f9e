// What the machine must offer before UCX starts, and what it must not inherit to children.

#pragma once

#include <set>

#include "runtime/vocabulary/result.hpp"
#include "transport/registry.hpp"

namespace troupe::transport {

/// Whether the transports that may be used include shared memory.
bool uses_shared_memory(const UcxOptions& options);

/// UCX fails late and with a bare "out of memory" when /dev/shm is small, as it is in containers.
/// Errors: unavailable: shared memory is among the transports and /dev/shm has too little room.
Status check_shared_memory(const UcxOptions& options, const char* folder = "/dev/shm");

/// Descriptors that are open in this process.
std::set<int> open_descriptors();

/// Sets CLOEXEC on those that were not open `before`: UCX leaves about ten without it, which would
/// keep sockets and shared memory alive in every child.
void close_new_descriptors_on_exec(const std::set<int>& before);

}  // namespace troupe::transport
