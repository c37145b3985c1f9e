// How a job ends: who is lost and why, who is told, what is waited for. A part of the supervisor's
// actor; every function runs in it.

#pragma once

#include <string>
#include <utility>

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

using SupervisorSelf = SupervisorActor::stateful_pointer<SupervisorState>;

inline Time now(SupervisorSelf self) { return self->clock().now(); }

/// True from the node's joining until it is lost or has ended.
inline bool is_there(const NodeEntry& node) {
  return node.phase != NodeEntry::Phase::missing && node.phase != NodeEntry::Phase::gone;
}

/// True of a node that has opened everything and is not lost.
inline bool takes_part(const NodeEntry& node) {
  return is_there(node) && node.phase != NodeEntry::Phase::joined;
}

/// Sends to a node that is there.
void send_to_node(SupervisorSelf self, const NodeEntry& node, auto&&... values) {
  if (is_there(node))
    self->send(caf::actor_cast<NodeActor>(node.handle), std::forward<decltype(values)>(values)...);
}

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
void node_lost(SupervisorSelf self, std::size_t id);

/// Trouble between nodes is told now; whose fault it was shows in a moment, or it ends the job.
void expect_reason(SupervisorSelf self, const Error& error);

/// A node says that it cannot go on. What it says about peers is believed a moment later, because a
/// lost peer is the better reason.
void node_failed(SupervisorSelf self, std::size_t id, Error& error);

/// A local process ended. What it says about the reason is better than a lost connection.
void process_exited(SupervisorSelf self, std::int32_t pid, const std::string& how);

/// An actor of a node is gone: it is lost. Where the job cannot go on without it, a better reason
/// may come first.
void connection_lost(SupervisorSelf self, const caf::actor_addr& source);

}  // namespace troupe::actors
