#include "runtime/vocabulary/iteration_plan.hpp"

namespace troupe {

std::string_view to_string(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward: return "forward";
    case ActionKind::backward: return "backward";
    case ActionKind::backward_input: return "backward_input";
    case ActionKind::backward_weight: return "backward_weight";
    case ActionKind::offload: return "offload";
    case ActionKind::fetch: return "fetch";
    case ActionKind::evict_parameters: return "evict_parameters";
    case ActionKind::fetch_parameters: return "fetch_parameters";
    case ActionKind::send: return "send";
    case ActionKind::receive: return "receive";
    case ActionKind::send_gradient: return "send_gradient";
    case ActionKind::receive_gradient: return "receive_gradient";
    case ActionKind::relay: return "relay";
    case ActionKind::relay_gradient: return "relay_gradient";
    case ActionKind::send_content: return "send_content";
    case ActionKind::receive_content: return "receive_content";
    case ActionKind::reduce_send: return "reduce_send";
    case ActionKind::reduce_partial: return "reduce_partial";
    case ActionKind::reduce: return "reduce";
    case ActionKind::reduce_relay: return "reduce_relay";
    case ActionKind::reduce_receive: return "reduce_receive";
    case ActionKind::commit: return "commit";
    case ActionKind::fetch_state: return "fetch_state";
    case ActionKind::offload_state: return "offload_state";
    case ActionKind::optimizer_step: return "optimizer_step";
  }
  return "unknown";
}

}  // namespace troupe
