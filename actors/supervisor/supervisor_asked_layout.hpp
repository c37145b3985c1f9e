// A layout that the job's owner asks for while it runs (`troupe ctl RUN layout FILE`): from the
// question to the change. A part of the supervisor's actor; every function runs in it.

#pragma once

#include <string>

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Notes the layout for the next step that is not planned yet, in place of one that waits. Returns
/// what will be done.
///
/// Errors, upon which nothing changes:
/// - unavailable: no step follows, the job has not begun, or a node that it names is not there.
/// - as `job::read_layout`, with the line; as `engine::plan_asked_layout`,
///   `engine::check_stage_kinds` and `engine::rehearse`; infeasible: no room for it beside the
///   present one.
Result<std::string> ask_for_layout(SupervisorSelf self, const ControlRequest& request);

/// Between two steps: brings up the layout that was asked for, where nothing has come in between
/// that forbids it. Returns whether it is on its way; else the log says why not.
/// REQUIRES: one is asked for; no step is under way.
bool take_up_asked_layout(SupervisorSelf self);

/// No step follows, so that a layout that waits for one is not taken up: the log says so.
void drop_asked_layout(SupervisorSelf self);

}  // namespace troupe::actors
