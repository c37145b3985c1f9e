#include "scheduler/simulate/host_moves.hpp"

namespace troupe::scheduler {

/// Of parameters that leave those go that the last update has changed, once a step: of others the
/// copy of an earlier step is good.
double HostMoves::duration_ms(DeviceId device, const Action& action) const {
  if (!moves_parameters(action.kind)) return costs_.host_ms(bytes_of(action));
  const StageParameters parameters = parameters_of(action.stage);
  const bool comes = action.kind == ActionKind::fetch_parameters;
  const double bytes = comes                                       ? parameters.all
                       : evicted_.contains({device, action.stage}) ? 0
                                                                   : parameters.trained;
  return bytes > 0 ? costs_.host_ms(bytes) : 0;
}

void HostMoves::account(DeviceId device, const Action& action, double begin_ms, double end_ms,
                        DeviceMemory& memory) {
  if (!moves_parameters(action.kind))
    return memory.move(action.kind, bytes_of(action), begin_ms, end_ms);
  const double bytes = parameters_of(action.stage).all;
  const bool leaves = action.kind == ActionKind::evict_parameters;
  const bool is_first = leaves && evicted_.emplace(device, action.stage).second;
  memory.move_parameters(leaves, bytes, is_first ? bytes : 0, begin_ms, end_ms);
}

/// Of activations or moments.
double HostMoves::bytes_of(const Action& action) const {
  if (moves_state(action.kind))
    return costs_.moment_bytes ? costs_.moment_bytes(action.group, action.stage) : 0;
  if (!costs_.offloaded_bytes) return 0;
  return costs_.offloaded_bytes(
      action.stage, samples_of(plan_, iteration_, action.stage, action.microbatch, action.part));
}

StageParameters HostMoves::parameters_of(StageId stage) const {
  return costs_.parameter_bytes ? costs_.parameter_bytes(stage) : StageParameters{};
}

}  // namespace troupe::scheduler
