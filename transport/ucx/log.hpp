// Keeps UCX from printing: what it has to say becomes part of our errors.
//
// Why: UCX writes every refused connection and dead peer to standard output, which belongs to the
// program. A user who sets UCX_LOG_LEVEL wants to see it and does.

#pragma once

#include <string>

namespace troupe::transport {

/// Takes UCX's log over for the whole process, once. Fatal messages are still printed. Thread-safe.
void take_over_ucx_log();

/// The latest error or warning that UCX logged in this thread, at most once; empty when none.
std::string take_ucx_message();

}  // namespace troupe::transport
