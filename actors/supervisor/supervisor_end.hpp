// How a job ends: who is lost and why, who is told, what is waited for. A part of the supervisor's
// actor; every function runs in it.

#pragma once

#include <string>

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Tells every node to end and remembers how the job ended; the first reason stands. All have
/// `cluster.stop_timeout_s` to go, the recorder too.
void end(SupervisorSelf self, JobEnd how);

/// Ends the job by an error.
void fail(SupervisorSelf self, const Error& error);

/// A signal asks to end the job; the second one does not wait for anybody.
void stop(SupervisorSelf self, std::int32_t signal);

/// Completes the end once every node has gone and all is written, or its time is over.
void finish_if_all_gone(SupervisorSelf self, bool at_once = false);

/// A node is lost: ends the job with what is known about it, or counts it as gone where the job
/// ends already.
void node_lost(SupervisorSelf self, NodeId id);

/// Trouble between nodes is told now; whose fault it was shows in a moment, or it ends the job.
void expect_reason(SupervisorSelf self, const Error& error);

/// A node says that it cannot go on. What it says about peers is believed a moment later, because a
/// lost peer is the better reason.
void node_failed(SupervisorSelf self, NodeId id, Error& error);

/// A local process ended. What it says about the reason is better than a lost connection.
void process_exited(SupervisorSelf self, std::int32_t pid, const std::string& how);

/// An actor of a node is gone: it is lost. Where the job cannot go on without it, a better reason
/// may come first.
void connection_lost(SupervisorSelf self, const caf::actor_addr& source);

}  // namespace troupe::actors
