// A node whose head is lost: keeps its state and finishes what is decided, looks for another head,
// and shows it what it holds. A part of the node's actor; every function runs in it.

#pragma once

#include <string>

#include "actors/node/node_actor.hpp"

namespace troupe::actors {

using NodeSelf = NodeActor::stateful_pointer<NodeState>;

/// Ends the node's actors and process.
void end_node(NodeSelf self, JobEnd how);

/// The word on a step came: kept for a head that does not know it.
void note_verdict(NodeState& state, const engine::StepVerdict& verdict);

/// The head lets this node leave, for this reason; empty: it stays. Kept for a head that does not
/// know it.
void note_leave(NodeState& state, const std::string& why);

/// All devices of this node have finished a step.
void step_finished(NodeSelf self, std::int64_t step);

/// The head was lost, for this reason: waits for another one where the job wants that
/// (`cluster.head_timeout_s`), else ends. A node without state waits for one that is only silent;
/// one that somebody started by hand also for the next one, which it joins anew. The head's own,
/// and those whose data are not open yet, wait in any case for one that is only silent, for 20
/// times `cluster.heartbeat_timeout_s`. `is_gone`: its connection broke, so that it cannot come
/// back by itself.
void head_lost(NodeSelf self, const std::string& why, bool is_gone);

/// A head is gone: the one that this node obeys, or one that it asks to take it.
void connection_ended(NodeSelf self, const caf::actor_addr& source);

/// The head that was silent says something: it goes on as if nothing had been.
void head_is_back(NodeSelf self);

/// Somebody listens where the job's head should be.
void head_found(NodeSelf self, const caf::strong_actor_ptr& found);

/// Asks the head to let this node leave, whose process a signal asked to end.
void ask_to_leave(NodeSelf self);

/// A signal asks the process to end while no head is there that would let it leave. Returns whether
/// it stays for now: another head that comes within seconds lets it leave, else all that nodes hold
/// is saved. It does not where nothing can be saved, for SIGINT (somebody sits there), or twice.
bool stays_to_save(NodeSelf self, std::int32_t signal, const std::string& why);

/// Ends the node once no head came in time. One that was found hears meanwhile that this node
/// comes.
void watch_for_head(NodeSelf self);

/// Whether the message at hand is from this process, or from the head that the node obeys: one that
/// was replaced says nothing that counts.
bool counts(NodeSelf self);

}  // namespace troupe::actors
