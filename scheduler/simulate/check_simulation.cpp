#include "scheduler/simulate/check_simulation.hpp"

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "scheduler/check/check_plan.hpp"

namespace troupe::scheduler {

namespace {

Status check_costs(const SimulationCosts& costs, const SimulationOptions& options) {
  for (const double value :
       {costs.bytes_per_element, costs.summed_bytes_per_element, costs.reduce_gigabytes_per_s,
        costs.device.latency_ms, costs.device.gigabytes_per_s, costs.node.latency_ms,
        costs.node.gigabytes_per_s, costs.network.latency_ms, costs.network.gigabytes_per_s,
        costs.host.latency_ms, costs.host.gigabytes_per_s, options.noise})
    if (!(value >= 0 && std::isfinite(value)))
      return Error{Errc::invalid_argument, "a speed, latency or noise is negative or not finite",
                   "simulate", "use values of at least 0"};
  return Done{};
}

/// Ids exist: the simulation indexes with them.
Status check_ids(const ParallelPlan& plan, const IterationPlan& iteration) {
  const auto wrong = [](std::string message) {
    return Error{Errc::invalid_argument, std::move(message), "simulate", "check the plan"};
  };
  if (iteration.actions.size() != plan.devices.size())
    return wrong("the plan has lists for " + std::to_string(iteration.actions.size()) + " of " +
                 std::to_string(plan.devices.size()) + " devices");
  const auto exists = [](auto id, std::size_t count) { return !id.valid() || id.index() < count; };
  for (const auto& list : iteration.actions)
    for (const auto& action : list) {
      bool known = exists(action.stage, plan.stages.size()) &&
                   exists(action.message, iteration.messages.size()) &&
                   exists(action.delivery, iteration.deliveries.size()) &&
                   exists(action.group, plan.groups.size());
      if (known && action.microbatch.valid()) {
        known = action.stage.valid() && action.part.valid();
        const auto replica = known ? plan.at(action.stage).replica.index() : 0;
        known = known && replica < iteration.microbatches.size();
        if (known) {
          const MicrobatchList& list = iteration.microbatches[replica];
          known = action.microbatch.index() < list.size() &&
                  action.part.index() < list[action.microbatch.index()].parts.size();
        }
      }
      if (!known) return wrong("there is no such thing as " + describe(plan, action));
    }
  return Done{};
}

}  // namespace

Error stands_still(const ParallelPlan& plan, DeviceId device, const Action& action) {
  return {Errc::internal,
          "the plan stands still: device " + std::to_string(device.value) + " waits at " +
              describe(plan, action),
          "simulate", "check the plan"};
}

Status check_simulation(const ParallelPlan& plan, const IterationPlan& iteration,
                        const SimulationCosts& costs, const SimulationOptions& options) {
  if (auto status = check_costs(costs, options); !status.ok()) return status;
  return check_ids(plan, iteration);
}

}  // namespace troupe::scheduler
