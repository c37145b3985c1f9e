// A crash of this process in one line of its own, instead of a library's.

#pragma once

namespace troupe::app {

/// From now on a crash (an invalid address, an illegal instruction) is told on stderr in two lines,
/// and the process ends by the same signal, so that its parent and a core dump show it; an
/// exception that nobody catches is told likewise. UCX, which takes these signals and SIGHUP when
/// it is loaded, is left out unless the environment has UCX_HANDLE_ERRORS, or UCX_DEBUG_SIGNO.
/// Sanitizers keep theirs. For the main thread, first of all.
void report_crashes();

}  // namespace troupe::app
