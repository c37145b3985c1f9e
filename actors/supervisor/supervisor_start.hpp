// How a job begins under its head, once it is known from where. A part of the supervisor's actor.

#pragma once

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Counts from where the job goes on, spawns the actors beside the supervisor, and waits for nodes.
void begin(SupervisorSelf self);

}  // namespace troupe::actors
