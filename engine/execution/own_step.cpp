#include "engine/execution/own_step.hpp"

#include <c10/core/GradMode.h>

#include "models/own_update.hpp"

namespace troupe::engine {

void own_step(const models::Parameter& parameter, const state::AdamWState& kept,
              const at::Tensor& sum, std::int64_t step, double learning_rate) {
  const c10::NoGradGuard no_grad;
  const at::Tensor value = parameter.value.detach();
  parameter.update({parameter.name, state::master_of(value, kept), sum, kept.exp_avg,
                    kept.exp_avg_sq, step, learning_rate});
  if (kept.master.defined()) value.copy_(kept.master);
}

}  // namespace troupe::engine
