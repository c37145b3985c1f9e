#include "scheduler/simulate/step_breakdown.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>

namespace troupe::scheduler {

namespace {

const Action& action_of(const IterationPlan& iteration, const SimulatedEvent& event) {
  return iteration.actions[event.device.index()][static_cast<std::size_t>(event.index)];
}

bool computes(const Action& action) {
  return action.microbatch.valid() && !moves_memory(action.kind);
}

/// When things were sent; what a boundary is crossed by may not have arrived yet.
class SendTimes {
 public:
  SendTimes(const IterationPlan& iteration, const SimulatedStep& step)
      : iteration_(iteration),
        rows_(iteration.messages.size()),
        gradients_(iteration.messages.size()),
        content_(iteration.deliveries.size()) {
    for (const SimulatedEvent& event : step.events) {
      const Action& action = action_of(iteration, event);
      double* sent = nullptr;
      if (action.kind == ActionKind::send) sent = &rows_[action.message.index()];
      if (action.kind == ActionKind::send_gradient) sent = &gradients_[action.message.index()];
      if (action.kind == ActionKind::send_content) sent = &content_[action.delivery.index()];
      if (sent != nullptr) *sent = std::max(*sent, event.end_ms);
    }
  }

  /// Of what an action waits for; none where that crosses no boundary.
  std::optional<double> of(const Action& action) const {
    switch (action.kind) {
      case ActionKind::receive:
      case ActionKind::relay: return of_message(action, rows_);
      case ActionKind::receive_gradient:
      case ActionKind::relay_gradient: return of_message(action, gradients_);
      case ActionKind::receive_content: return content_[action.delivery.index()];
      default: return std::nullopt;
    }
  }

 private:
  std::optional<double> of_message(const Action& action, const std::vector<double>& sent) const {
    if (!iteration_.messages[action.message.index()].boundary) return std::nullopt;
    return sent[action.message.index()];
  }

  const IterationPlan& iteration_;
  std::vector<double> rows_, gradients_, content_;  ///< By message and delivery.
};

/// Whether who waits to begin it waits for the pipeline: for rows, or for the ranks of a grid.
bool belongs_to_pipeline(const Action& action) {
  return action.microbatch.valid() || action.message.valid() || action.delivery.valid();
}

/// The waits of the device that runs this list.
void add_waits(DeviceId list, const IterationPlan& iteration, const SimulatedStep& step,
               StepBreakdown& found) {
  const SendTimes sent(iteration, step);
  double free_ms = 0;
  for (const SimulatedEvent& event : step.events) {
    if (event.device != list) continue;
    const Action& action = action_of(iteration, event);
    if (belongs_to_pipeline(action)) {
      const double sent_ms = sent.of(action).value_or(event.begin_ms);
      const double on_its_way = std::max(0.0, event.begin_ms - std::max(free_ms, sent_ms));
      found.boundary_ms += on_its_way;
      found.fill_ms += event.begin_ms - free_ms - on_its_way;
    }
    free_ms = event.end_ms;
  }
}

/// Per stage: compute on one of its ranks.
std::vector<double> compute_ms(const ParallelPlan& plan, const IterationPlan& iteration,
                               const SimulatedStep& step) {
  std::vector<double> found(plan.stages.size());
  for (const SimulatedEvent& event : step.events) {
    const Action& action = action_of(iteration, event);
    if (computes(action) && plan.lead_of(plan.at(action.stage).devices.front()) == event.device)
      found[action.stage.index()] += event.end_ms - event.begin_ms;
  }
  return found;
}

/// Per replica: compute of its busiest device.
std::vector<double> busiest_ms(const ParallelPlan& plan, const std::vector<double>& stage_ms) {
  std::vector<double> found;
  for (const Replica& replica : plan.replicas) {
    std::map<DeviceId, double> busy;
    double& busiest = found.emplace_back(0);
    for (const StageId stage : replica.stages)
      for (const DeviceId device : plan.at(stage).devices)
        busiest = std::max(busiest, busy[device] += stage_ms[stage.index()]);
  }
  return found;
}

/// A replica of speed v that takes t has v t of the work, which all would do in the same time.
PhaseTime phase_time(const ParallelPlan& plan, ModuleGroupId group,
                     const std::vector<double>& replica_ms, std::span<const double> speeds) {
  PhaseTime found;
  double work = 0, speed = 0;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    if (plan.replicas[r].group != group) continue;
    found.largest_ms = std::max(found.largest_ms, replica_ms[r]);
    work += speeds[r] * replica_ms[r];
    speed += speeds[r];
  }
  found.even_ms = work / speed;
  return found;
}

}  // namespace

StepBreakdown break_down(const ParallelPlan& plan, const IterationPlan& iteration,
                         const SimulatedStep& step, std::span<const double> speeds) {
  std::vector<double> work(plan.devices.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const DeviceId device : plan.stages[s].devices) work[device.index()] += step.stage_ms[s];
  const auto most = std::max_element(work.begin(), work.end());
  StepBreakdown found;
  found.work_ms = *most;
  const DeviceId busiest{static_cast<std::size_t>(most - work.begin())};
  add_waits(plan.lead_of(busiest), iteration, step, found);
  found.rest_ms = std::max(0.0, step.step_ms - found.work_ms - found.fill_ms - found.boundary_ms);
  const auto replica_ms = busiest_ms(plan, compute_ms(plan, iteration, step));
  for (std::size_t g = 0; g < plan.module_groups.size(); ++g)
    found.phases.push_back(phase_time(plan, ModuleGroupId{g}, replica_ms, speeds));
  return found;
}

}  // namespace troupe::scheduler
