// What a replay refuses, and the names of its enums.

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/recovery/replay_failures.hpp"

namespace troupe::scheduler {

namespace {

Error refuse(std::string message, std::string where, std::string fix = {}) {
  return {Errc::invalid_argument, std::move(message), std::move(where), std::move(fix)};
}

Status check_rate(const char* name, double rate) {
  if (std::isfinite(rate) && rate > 0) return Done{};
  return refuse("a bandwidth must be a finite number above 0", name);
}

Status check_costs(const RecoveryCosts& costs) {
  std::vector<std::pair<const char*, double>> times{{"turnover_ms", costs.turnover_ms},
                                                    {"restart_ms", costs.restart_ms}};
  for (const ChangeCosts* change : {&costs.loss, &costs.join}) {
    times.emplace_back("detect_ms", change->detect_ms);
    times.emplace_back("decide_ms", change->decide_ms);
    times.emplace_back("copy_ms", change->copy_ms);
    times.emplace_back("rebuild_ms", change->rebuild_ms);
    times.emplace_back("first_step_ms", change->first_step_ms);
  }
  for (const auto& [name, ms] : times)
    if (!std::isfinite(ms) || ms < 0)
      return refuse("a time must be a finite number of at least 0", name);
  if (auto rate = check_rate("storage_bytes_per_ms", costs.storage_bytes_per_ms); !rate.ok())
    return rate;
  if (!std::isfinite(costs.node_storage_bytes_per_ms) || costs.node_storage_bytes_per_ms < 0)
    return refuse("a node's bandwidth must be a finite number of at least 0",
                  "node_storage_bytes_per_ms");
  if (costs.checkpoint_iterations < 0)
    return refuse("expected at least 0 iterations", "checkpoint_iterations",
                  "0 makes no checkpoints");
  return Done{};
}

Status check_model(const RecoveryModel& model) {
  if (model.templates.templates.empty()) return refuse("there are no templates", "templates");
  for (const auto& made : model.templates.templates) {
    if (!std::isfinite(made.microbatch_ms) || made.microbatch_ms <= 0)
      return refuse("a template must take a finite time above 0 ms per microbatch", "templates");
    for (const auto& stage : made.stages)
      if (static_cast<std::size_t>(stage.layers.end) > model.layer_bytes.size())
        return refuse("the templates have more layers than there are sizes", "layer_bytes",
                      "give " + std::to_string(stage.layers.end) + " sizes");
  }
  for (const auto bytes : model.layer_bytes)
    if (bytes < 0) return refuse("a layer has a negative size", "layer_bytes");
  if (model.fault_tolerance < 0) return refuse("expected at least 0", "fault_tolerance");
  if (model.microbatch_size < 1 || model.global_batch < model.microbatch_size ||
      model.global_batch % model.microbatch_size != 0)
    return refuse("the batch must be a multiple of the microbatch size", "global_batch",
                  "batch " + std::to_string(model.global_batch) + ", microbatch " +
                      std::to_string(model.microbatch_size));
  return Done{};
}

}  // namespace

std::string_view to_string(RecoveryMode mode) {
  return mode == RecoveryMode::live ? "live" : "restart";
}

std::string_view to_string(EventOutcome outcome) {
  switch (outcome) {
    case EventOutcome::unaffected: return "unaffected";
    case EventOutcome::reconfigured: return "reconfigured";
    case EventOutcome::restarted: return "restarted";
    case EventOutcome::stopped: return "stopped";
    case EventOutcome::waiting: return "waiting";
  }
  return "unknown";
}

Status check_replay(double duration_ms, const std::vector<NodeEvent>& events,
                    const RecoveryCosts& costs) {
  if (!std::isfinite(duration_ms) || duration_ms <= 0)
    return refuse("expected a finite time above 0", "duration_ms");
  double last_ms = 0;
  for (const auto& event : events) {
    if (!std::isfinite(event.time_ms) || event.time_ms < last_ms)
      return refuse("times must be finite and ascend", "events");
    last_ms = event.time_ms;
  }
  return check_costs(costs);
}

Status check_replay(const ReplayRequest& request) {
  if (auto rest = check_replay(request.duration_ms, request.events, request.costs); !rest.ok())
    return rest;
  if (auto link = check_rate("link_bytes_per_ms", request.costs.link_bytes_per_ms); !link.ok())
    return link;
  return check_model(request.model);
}

}  // namespace troupe::scheduler
