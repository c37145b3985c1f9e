// Keeps UCX from printing: what it has to say becomes part of our errors.
//
// Why: UCX writes every refused connection and dead peer to standard output, which belongs to the
// program. A user who sets UCX_LOG_LEVEL, UCX_HANDLE_ERRORS or UCX_DEBUG_SIGNO wants to see it and
// does.

#pragma once

#include <string>

namespace troupe::transport {

/// Takes UCX's log over for the whole process, once. A fatal message, after which UCX ends the
/// process, is printed as one line of ours. Thread-safe.
void take_over_ucx_log();

/// Takes back the signals that UCX handles from its loading on, each with what it did before: those
/// of a crash, which bring a backtrace on standard output, unless the environment has
/// UCX_HANDLE_ERRORS; and SIGHUP, which makes UCX log everything, unless it has UCX_DEBUG_SIGNO.
/// Not thread-safe.
void keep_ucx_from_signals();

/// The latest error or warning that UCX logged in this thread, at most once; empty when none.
std::string take_ucx_message();

}  // namespace troupe::transport
