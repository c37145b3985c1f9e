// How the trained model comes to the head once the last step is done. A part of the supervisor's
// actor; every function runs in it.

#pragma once

#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// All steps are done: asks the devices for what is to be written.
void begin_collecting(SupervisorSelf self);

/// Tensors of nodes that were lost after they had offered all of theirs have not come: goes on
/// without these nodes, so that they are collected from the others, or ends the job with what is
/// left.
void collect_without_lost(SupervisorSelf self);

/// Whether all has been offered, so that the recorder alone knows what has come, and says so.
bool is_with_recorder(const SupervisorState& state);

/// Whether the recorder collects the last tensors, or has them, so that no node has anything left
/// to say of the model: a last checkpoint may still be written.
bool is_collected(const SupervisorState& state);

/// A device offers its tensors of a collection.
void offered(SupervisorSelf self, const Offers& offers);

/// Time passes. A device that has not offered its tensors for longer than a copy out of it can take
/// hangs: for `train.stall_timeout_s` and ten of the longest step, and for ten minutes at least.
/// That costs its node, a loss like any other; long before, the log names it.
void watch_offers(SupervisorSelf self);

}  // namespace troupe::actors
