#include "engine/iteration/exchange_count.hpp"

#include <algorithm>
#include <cstddef>

#include "engine/iteration/phase_exchange.hpp"

namespace troupe::engine {

bool can_exchange(const ParallelPlan& plan, ModuleGroupId group) {
  return group.index() + 1 < plan.module_groups.size() && replicas_of(plan, group).size() > 1;
}

bool can_exchange(const ParallelPlan& plan) {
  for (std::size_t g = 0; g < plan.module_groups.size(); ++g)
    if (can_exchange(plan, ModuleGroupId{g})) return true;
  return false;
}

void ExchangeCount::add(const Prediction& step) {
  ++steps;
  if (!refused) refused = step.exchange_refused;
  if (!step.exchanged) {
    if (!prevented) prevented = step.exchange_refused;
    return;
  }
  ++exchanged;
  phases.resize(std::max(phases.size(), step.exchanged_phases.size()));
  for (std::size_t g = 0; g < step.exchanged_phases.size(); ++g) {
    phases[g].exchanged += step.exchanges(g) ? 1 : 0;
    const auto found = step.refused_phases.find(g);
    if (found == step.refused_phases.end()) continue;
    ++phases[g].refused;
    if (!phases[g].why) phases[g].why = found->second;
  }
}

}  // namespace troupe::engine
