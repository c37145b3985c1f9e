// How a head goes on with the nodes that it gathered from one that was lost: it trains on, has them
// save what they hold, or waits with them for those that are missing. A part of the supervisor's
// actor; every function runs in it.

#pragma once

#include "actors/supervisor/gathered.hpp"
#include "actors/supervisor/supervisor_actor.hpp"
#include "runtime/vocabulary/model_state.hpp"

namespace troupe::actors {

/// The job goes on from the last step that its nodes finished: state lies as `placed`. Where no
/// layout works on them, and others were lost with the head, they save, and all wait for those
/// (`wait_with_gathered`); where none were, or this head does not reach some of them, it ends, and
/// they keep their state for another one. A head that only saves has them save.
///
/// REQUIRES: they are gathered, hold all of the model together, and none has a step to finish.
void take_over(SupervisorSelf self, const Gathered& gathered, const StatePlacement& placed);

/// No layout comes up any more, and nobody else will come for what there is: all save it as it
/// lies, whole or not. `before`: where it lay while the nodes that are missing were there.
/// REQUIRES: as above, but that they may hold a part of the model.
void save_held(SupervisorSelf self, const Gathered& gathered, const StatePlacement& before,
               const StatePlacement& placed);

}  // namespace troupe::actors
