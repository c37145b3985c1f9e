// Values for layers that are measured, not trained.
//
// One owner, one thread.

#pragma once

#include "models/layer.hpp"

namespace troupe::engine {

/// Writes values that cost what those of a model cost, without drawing them one by one, which takes
/// a large model longer than all of its measuring: some that differ, again and again, as a device
/// whose numbers are all alike draws less power and runs faster. Scales of norms are one.
/// REQUIRES: all parameters of the layer have tensors.
void fill_plausibly(models::Layer& layer);

}  // namespace troupe::engine
