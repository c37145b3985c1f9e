// A head that takes over from one that was lost: gathers the nodes that wait with their state, and
// goes on from there; or begins as if there were none. A part of the supervisor's actor; every
// function runs in it.

#pragma once

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Waits for the nodes of the job before. REQUIRES: the resources say how.
void begin_gathering(SupervisorSelf self);

/// Ends this head alone, with the exit code of a job that can be resumed: the nodes go on waiting,
/// with their state. For what another head, or the same one later, may not meet; where it is the
/// job that is wrong, `fail` says so.
void leave_gathered(SupervisorSelf self, const Error& why);

/// A device of theirs has finished the last step of the head before.
void gathered_device_finished(SupervisorSelf self, const engine::DeviceReport& report);

/// One of them is lost again.
void gathered_lost(SupervisorSelf self, NodeId node);

/// One of them cannot go on, or was told to end.
void gathered_failed(SupervisorSelf self, NodeId node, const Error& error);

/// Goes on once all are there, or their time is over.
void watch_gathering(SupervisorSelf self);

}  // namespace troupe::actors
