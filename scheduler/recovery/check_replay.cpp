// What a replay refuses, and the names of its enums.

#include <cmath>
#include <string>
#include <utility>

#include "scheduler/recovery/replay_failures.hpp"

namespace troupe::scheduler {

namespace {

Error refuse(std::string message, std::string where, std::string fix = {}) {
  return {Errc::invalid_argument, std::move(message), std::move(where), std::move(fix)};
}

Status check_costs(const RecoveryCosts& costs) {
  const std::pair<const char*, double> times[] = {{"detection_ms", costs.detection_ms},
                                                  {"coordination_ms", costs.coordination_ms},
                                                  {"restart_ms", costs.restart_ms}};
  for (const auto& [name, ms] : times)
    if (!std::isfinite(ms) || ms < 0)
      return refuse("a time must be a finite number of at least 0", name);
  const std::pair<const char*, double> rates[] = {
      {"link_bytes_per_ms", costs.link_bytes_per_ms},
      {"storage_bytes_per_ms", costs.storage_bytes_per_ms}};
  for (const auto& [name, rate] : rates)
    if (!std::isfinite(rate) || rate <= 0)
      return refuse("a bandwidth must be a finite number above 0", name);
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

Status check_replay(const ReplayRequest& request) {
  if (!std::isfinite(request.duration_ms) || request.duration_ms <= 0)
    return refuse("expected a finite time above 0", "duration_ms");
  double last_ms = 0;
  for (const auto& event : request.events) {
    if (!std::isfinite(event.time_ms) || event.time_ms < last_ms)
      return refuse("times must be finite and ascend", "events");
    last_ms = event.time_ms;
  }
  if (auto costs = check_costs(request.costs); !costs.ok()) return costs;
  return check_model(request.model);
}

}  // namespace troupe::scheduler
