// Makes the backend `inproc`: nodes that are threads of one process.

#pragma once

#include <memory>

#include "runtime/vocabulary/result.hpp"
#include "transport/registry.hpp"

namespace troupe::transport {

/// Needs `self`, `receives_max` and `hub`. A send completes when its receive takes the bytes, so a
/// program that relies on buffering shows here. Errors: none.
Result<std::unique_ptr<Transport>> create_inproc(const TransportOptions& options);

}  // namespace troupe::transport
