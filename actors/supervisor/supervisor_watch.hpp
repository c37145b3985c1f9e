// What the supervisor does as time passes: deadlines, signs of life, word of stalls. A part of its
// actor.

#pragma once

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Looks at the time now, and again and again until the job has ended.
void watch(SupervisorSelf self);

}  // namespace troupe::actors
