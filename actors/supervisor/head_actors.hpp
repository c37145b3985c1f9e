// The actors beside the supervisor in a head process.

#pragma once

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Spawns the scheduler and the recorder, both detached: one plans and one writes files.
/// `resources` outlive both.
SpawnActors head_actors(HeadResources& resources);

}  // namespace troupe::actors
