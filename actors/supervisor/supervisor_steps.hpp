// The loop of training: plans are asked for, sent, decided and finished. A part of the supervisor's
// actor; every function runs in it.

#pragma once

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// A layout is up: plans from the last finished step on.
void start_training(SupervisorSelf self);

/// Asks for one plan at a time, as long as devices have room for another step. A step of another
/// layout waits until all steps before it have ended. REQUIRES: not while a step is being finished.
void ask_for_plan(SupervisorSelf self);

/// The scheduler has planned the next batch: sends it to the devices, one step ahead of them.
void planned(SupervisorSelf self, const PlannedBatchPtr& batch);

/// The scheduler has no plan for the next batch of a layout, which ends the job. Nothing of one
/// that another one has replaced, or will: the batch is planned anew for that.
void not_planned(SupervisorSelf self, EpochNumber epoch_number, const Error& error);

/// A device has all reduced gradients of a step.
void prepared(SupervisorSelf self, const engine::Prepared& report);

/// A device has finished a step.
void device_finished(SupervisorSelf self, const engine::DeviceReport& report);

/// Records decided steps that no device works on any more, the oldest first.
void finish_ended_steps(SupervisorSelf self);

}  // namespace troupe::actors
