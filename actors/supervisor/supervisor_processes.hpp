// What becomes of a node whose process has ended, as the head says, whose child it was. A part of
// the supervisor's actor; every function runs in it.

#pragma once

#include <cstdint>
#include <string>

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// A local process ended. What it says about the reason is better than a lost connection.
/// `signal`: that ended it; 0: none.
void process_exited(SupervisorSelf self, std::int32_t pid, const std::string& how,
                    std::int32_t signal);

}  // namespace troupe::actors
