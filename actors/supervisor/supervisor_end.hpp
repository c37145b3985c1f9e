// How a job ends: who is lost and why, who is told, what is waited for. A part of the supervisor's
// actor; every function runs in it.

#pragma once

#include <cstdint>
#include <string>

#include "actors/coordination/step_failures.hpp"
#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Tells every node to end and remembers how the job ended; the first reason stands. All have
/// `cluster.stop_timeout_s` to go, the recorder too.
void end(SupervisorSelf self, JobEnd how);

/// Ends the job by an error.
void fail(SupervisorSelf self, const Error& error);

/// For which time a job that ends now begins again by itself from its newest checkpoint; 0: it does
/// not. One that is to stop does only where it says so (`Stopping::begins_again`).
std::int32_t next_try(const SupervisorState& state);

/// Whether a job that this error ends begins again from a checkpoint by itself.
bool would_begin_again(const SupervisorState& state, const Error& error);

/// A signal asks to end the job; the second one does not wait for anybody.
void stop(SupervisorSelf self, std::int32_t signal);

/// Completes the end once every node has gone and all is written, or its time is over.
void finish_if_all_gone(SupervisorSelf self, bool at_once = false);

/// A node is lost, and so much is known of it: goes on without it, or ends the job with what is
/// known, also where the same step ends one node after the other (`StepFailures`). Counts it as
/// gone where the job ends already.
void node_lost(SupervisorSelf self, NodeId id, FailureKind kind = FailureKind::unexplained);

/// Trouble between nodes is told now; whose fault it was shows in a moment, or it ends the job.
void expect_reason(SupervisorSelf self, const Error& error);

/// A node says that it cannot go on. What it says about peers is believed a moment later, because a
/// lost peer is the better reason; anything else ends the job, behind a last save. `is_intact`: the
/// node can write what it keeps of the last finished step.
void node_failed(SupervisorSelf self, NodeId id, Error& error, bool is_intact = true);

/// The same of one of its devices, in the layout that is up or comes up: bad numbers, too little
/// memory. In the middle of an update, or of a change of layout, it is not intact.
void device_failed(SupervisorSelf self, NodeId id, Error& error);

/// An actor beside the supervisor cannot go on, or tensors of a collection did not come: of one
/// that is over that means nothing any more.
void head_failed(SupervisorSelf self, const Error& error);

/// A stage threw at a node, or its device failed, or does not get into the groups of a layout.
/// Where the job bears its loss the node is told to end, and the job goes on without it, once;
/// where the same step fails again, or a stage threw that it cannot do without, the job ends; a
/// device that it cannot do without is a loss like that of its process. A call that fails while
/// a decided step is finished without a lost node, or while the job waits for nodes, costs nobody.
void work_failed(SupervisorSelf self, NodeId id, const engine::FailedWork& failed);

/// An actor of a node is gone: it is lost. Where the job cannot go on without it, a better reason
/// may come first.
void connection_lost(SupervisorSelf self, const caf::actor_addr& source);

}  // namespace troupe::actors
