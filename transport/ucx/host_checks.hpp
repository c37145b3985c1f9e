// What the machine must offer before UCX starts, and what it must not inherit to children.

#pragma once

#include <set>

#include "runtime/vocabulary/result.hpp"

namespace troupe::transport {

/// UCX fails late and with a bare "out of memory" when /dev/shm is small, as it is in containers.
/// Errors: unavailable: /dev/shm has too little room for the queues between nodes.
Status check_shared_memory(const char* folder = "/dev/shm");

/// Descriptors that are open in this process.
std::set<int> open_descriptors();

/// Sets CLOEXEC on those that were not open `before`: UCX leaves about ten without it, which would
/// keep sockets and shared memory alive in every child.
void close_new_descriptors_on_exec(const std::set<int>& before);

}  // namespace troupe::transport
