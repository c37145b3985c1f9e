// How a job ends: who is lost and why, who is told, what is waited for. A part of the supervisor's
// actor; every function runs in it.

#pragma once

#include <string>

#include "actors/coordination/step_failures.hpp"
#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Tells every node to end and remembers how the job ended; the first reason stands. All have
/// `cluster.stop_timeout_s` to go, the recorder too.
void end(SupervisorSelf self, JobEnd how);

/// Ends the job by an error.
void fail(SupervisorSelf self, const Error& error);

/// The same where all nodes are there with their state: they save the last finished step first,
/// unless the job begins again from a checkpoint by itself. The exit code is that of `fail`, so
/// that who begins a job again at 75 does not do so for what would come again.
void save_and_fail(SupervisorSelf self, const Error& error);

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
/// lost peer is the better reason.
void node_failed(SupervisorSelf self, NodeId id, Error& error);

/// A stage threw at a node. Where the job bears its loss the node is told to end, and the job goes
/// on without it, once; where the same step fails again, or cannot do without it, the job ends.
void work_failed(SupervisorSelf self, NodeId id, const engine::FailedWork& failed);

/// A local process ended. What it says about the reason is better than a lost connection.
/// `signal`: that ended it; 0: none.
void process_exited(SupervisorSelf self, std::int32_t pid, const std::string& how,
                    std::int32_t signal);

/// An actor of a node is gone: it is lost. Where the job cannot go on without it, a better reason
/// may come first.
void connection_lost(SupervisorSelf self, const caf::actor_addr& source);

}  // namespace troupe::actors
