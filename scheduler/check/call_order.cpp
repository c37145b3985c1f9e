#include "scheduler/check/call_order.hpp"

#include <cstddef>

#include "scheduler/check/check_plan.hpp"

namespace troupe::scheduler {

std::vector<Fault> call_order_faults(const ParallelPlan& plan, const IterationPlan& iteration) {
  std::vector<std::vector<const Action*>> calls(iteration.actions.size());
  std::vector<std::vector<std::size_t>> devices(plan.groups.size());  // That enter each.
  for (std::size_t d = 0; d < calls.size(); ++d)
    for (const Action& action : iteration.actions[d])
      if (action.kind == ActionKind::reduce_send &&
          is_by_nccl(plan.groups[action.group.index()].order)) {
        calls[d].push_back(&action);
        devices[action.group.index()].push_back(d);
      }
  std::vector<std::size_t> next(calls.size()), come(plan.groups.size());
  std::vector<std::size_t> complete;  // Groups to whose call all have come.
  const auto arrive = [&](std::size_t d) {
    if (next[d] == calls[d].size()) return;
    const std::size_t group = calls[d][next[d]]->group.index();
    if (++come[group] == devices[group].size()) complete.push_back(group);
  };
  for (std::size_t d = 0; d < calls.size(); ++d) arrive(d);
  while (!complete.empty()) {
    const std::size_t group = complete.back();
    complete.pop_back();
    for (const std::size_t d : devices[group]) {
      ++next[d];
      arrive(d);
    }
  }
  std::vector<Fault> faults;
  for (std::size_t d = 0; d < calls.size(); ++d)
    if (next[d] < calls[d].size())
      faults.push_back({FaultKind::deadlock, DeviceId{d}, describe(plan, *calls[d][next[d]]),
                        "other devices enter calls to NCCL in another order"});
  return faults;
}

}  // namespace troupe::scheduler
