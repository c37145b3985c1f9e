// Newcomers take over state while the others train, before a layout gives them work
// (scheduler/recovery/warm_up.hpp): a row of layouts that train as before, each with a few more
// standby holders, whose state comes during its first step. A part of the supervisor's actor; every
// function runs in it.

#pragma once

#include <cstdint>
#include <string>

#include "actors/supervisor/layout_change.hpp"
#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Takes up the next of these layouts on the way to `wanted`. False: all that `wanted` needs is
/// there, or what is not is sooner copied while all wait, or it does not fit beside the rest.
/// REQUIRES: no step runs.
bool warm_up(SupervisorSelf self, const Regrouping& wanted);

/// What came is of no use: brings up the layout without it. False: there is nothing to undo, or the
/// job ends. REQUIRES: no step runs.
bool give_up_warm_up(SupervisorSelf self);

/// The layout that trains, without what warms up: what another one is made from.
const ParallelPlan& trained_layout(const SupervisorState& state);

/// `1 step`, `3 steps`.
std::string step_count_text(std::int64_t steps);

}  // namespace troupe::actors
