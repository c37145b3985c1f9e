// Steps that do not end and layouts that do not come up: who is told of them, which stage does not
// return, which message does not come, and whose node is lost for it. A part of the supervisor's
// actor.

#pragma once

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// A node says what its devices have been at for long.
void note_long_work(SupervisorSelf self, NodeId node, const engine::LongWorks& told);

/// A node says for what its devices have long waited. Where a message was sent and does not come,
/// for twice `cluster.heartbeat_timeout_s` and three times the longest step so far (in the first
/// one 30 s), both ends of its way miss each other: as where a connection breaks, the job does
/// without the one whose loss costs less, or the one with most such ways. While state is copied the
/// same holds of nodes of which one hears nothing from the other, for twice
/// `cluster.heartbeat_timeout_s`, and where a step runs beside for as long as of its messages.
void note_long_waits(SupervisorSelf self, NodeId node, const engine::LongWaits& told);

/// Tells of a step that takes very long. One that nobody should wait for any longer
/// (`train.stall_timeout_s`) costs the nodes whose devices have been in one piece of its work for
/// most of the time, as where a stage throws: the job goes on without them, once; where the same
/// work does not return again, or the job cannot do without them, or there are none, it ends,
/// behind a save of the last finished step where that can be; of a decided one by those that are
/// done with it.
void find_stalls(SupervisorSelf self);

/// A layout has not come up within `cluster.join_timeout_s`. That costs the nodes that keep it from
/// doing so: those whose devices have been in one piece of work, of the layout before, for most of
/// the time, else the only one that is late. The job goes on without them, once until a layout is
/// up; where that happens again, or nobody can be told from the others that wait for it, or the job
/// cannot do without them, it ends, behind a save from where state lies, and names all that are
/// late.
void lose_late(SupervisorSelf self);

/// A call that opens a group of NCCL hangs at a device, as a layout comes up (`FailedWork::step` is
/// 0). That costs its node, as of a call in a step, until a layout is up: where two nodes are lost,
/// for this or otherwise, and the next opening hangs, NCCL works nowhere, and the job ends, behind
/// a save from where state lies, and names all of them. Of a device that is lost beside a step
/// while a layout trains nodes say the same: that costs its node alone.
void opening_failed(SupervisorSelf self, NodeId id, const engine::FailedWork& failed);

}  // namespace troupe::actors
