// What a device gives to the head once all steps are done: its part of the trained model, and the
// gradients of step 1 that it kept for `train.dump_gradients`. A part of the executor's actor.

#pragma once

#include "actors/node/executor_actor.hpp"

namespace troupe::actors {

/// Sends the tensors of a collection to the head's transport, and returns which. Of a tensor that
/// several devices of the layout have one offers it. Errors: as `Executor::parameters`.
Result<Offers> offer(ExecutorState& state, Collection collection);

}  // namespace troupe::actors
