#include "engine/execution/stage_traffic.hpp"

#include <algorithm>

namespace troupe::engine {

StageTraffic traffic_of(const ParallelPlan& plan, const IterationPlan& iteration, StageId id) {
  StageTraffic traffic;
  const std::size_t device = plan.at(id).devices.front().index();
  // Where all samples are bad there are no lists.
  if (device < iteration.actions.size())
    for (const Action& action : iteration.actions[device]) {
      if (action.stage != id) continue;
      const PartKey part{action.microbatch, action.part};
      if (action.kind == ActionKind::forward) traffic.parts.push_back(part);
      if (action.kind == ActionKind::backward || action.kind == ActionKind::backward_input)
        traffic.backward.insert(part);
      if (action.kind == ActionKind::offload) traffic.offloaded.insert(part);
    }
  std::ranges::sort(traffic.parts);
  for (std::size_t i = 0; i < iteration.messages.size(); ++i) {
    const Message& message = iteration.messages[i];
    if (message.source.stage == id)
      traffic.outgoing[part_of(message.source)].push_back(iteration.id_of(i));
    if (message.destination.stage == id)
      traffic.incoming[part_of(message.destination)].push_back(iteration.id_of(i));
  }
  return traffic;
}

}  // namespace troupe::engine
