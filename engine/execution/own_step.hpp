// The step of a parameter that its family moves by a rule of its own (models/own_update.hpp), for
// holders in stages, on standby and in reference runs alike.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/layer.hpp"
#include "runtime/state/adamw.hpp"

namespace troupe::engine {

/// Asks `parameter.update`, which is set, to move the parameter, and rounds a narrow one from its
/// master afterwards. `kept`: its master, and both moments as what the rule keeps. `sum`: of the
/// global batch; the parameter's shape, and the type of the exact value.
/// Throws what the rule throws, as `UserFault` of the family.
void own_step(const models::Parameter& parameter, const state::AdamWState& kept,
              const at::Tensor& sum, std::int64_t step, double learning_rate);

}  // namespace troupe::engine
