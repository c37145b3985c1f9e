#include "engine/iteration/exchange_count.hpp"

#include "engine/iteration/phase_exchange.hpp"

namespace troupe::engine {

bool can_exchange(const ParallelPlan& plan) {
  for (std::size_t g = 0; g + 1 < plan.module_groups.size(); ++g)
    if (replicas_of(plan, ModuleGroupId{g}).size() > 1) return true;
  return false;
}

void ExchangeCount::add(const Prediction& step) {
  ++steps;
  exchanged += step.exchanged ? 1 : 0;
  if (!refused) refused = step.exchange_refused;
}

}  // namespace troupe::engine
