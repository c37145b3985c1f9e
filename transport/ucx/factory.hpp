// Makes the backend `ucx`: nodes that are processes, on one machine or several.

#pragma once

#include <memory>

#include "runtime/vocabulary/result.hpp"
#include "transport/registry.hpp"

namespace troupe::transport {

/// Starts the transport's thread.
/// Errors: as `create_transport`; `unavailable` when /dev/shm is too small for shared memory.
Result<std::unique_ptr<Transport>> create_ucx(const TransportOptions& options);

}  // namespace troupe::transport
