// What the supervisor does about nodes that slow down. A part of its actor.

#pragma once

#include <set>

#include "actors/head/recorder_actor.hpp"
#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// Looks at what the nodes took for a finished step. One that has long been under half its usual
/// speed is named, in the log and in events.jsonl, and with `recovery.drain_slow` leaves. While it
/// is slow the scheduler hears after each step how slow, and then that it is as fast as it was.
void watch_speeds(SupervisorSelf self, const StepRecord& record);

/// Other nodes are there than before: with `recovery.drain_slow` those that are slow leave where
/// they can by now. What is still in the way is not said again.
void drain_slow_nodes(SupervisorSelf self);

/// Takes note of how fast a node says that it is beside the machine that the profile is of, where
/// these differ by more than probes do: samples are dealt by that until steps have shown more.
void take_speed(SupervisorState& state, const NodeReady& ready);

/// Who was slow under the head before, of these nodes, is so still: its samples are dealt by that
/// until steps show that it is as fast as it was. REQUIRES: the job begins under this head.
void recall_slow_nodes(SupervisorState& state, const std::set<NodeId>& there);

/// Tells the scheduler of all nodes that are not as fast as the profile has them.
void tell_speeds(SupervisorSelf self);

/// A node has left the job: who comes in its place is as fast as any other.
void forget_speed(SupervisorSelf self, NodeId node);

}  // namespace troupe::actors
