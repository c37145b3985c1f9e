// What the job's owner asks of a running job (`troupe ctl`). A part of the supervisor's actor;
// every function runs in it.

#pragma once

#include <string>

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Answers a request. Errors: why it cannot be done, and the fix.
caf::result<std::string> control(SupervisorSelf self, const ControlRequest& request);

}  // namespace troupe::actors
