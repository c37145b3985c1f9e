// What layers cost that keep their input alone and run forward again in their backward.
//
// Pure.

#pragma once

#include "runtime/vocabulary/model_graph.hpp"
#include "scheduler/cost/profile.hpp"

namespace troupe::scheduler {

/// `profile` where activations of the layers of `graph` are recomputed (`is_recomputed`): of their
/// kinds input gradients take a forward longer, and what is kept of a token is one row of the
/// module's width, `element_bytes` a number, cut along cp. So a layer whose input needs no gradient
/// is predicted a forward too short: the first that trains behind frozen ones. What a layer holds
/// while it runs again is gone behind its backward and is not in it. Cost: linear in points.
Profile with_recomputation(const ModelGraph& graph, Profile profile, double element_bytes);

}  // namespace troupe::scheduler
