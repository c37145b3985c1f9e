// How commands say whether steps are exchanged (`balancer.exchange`).
//
// Pure.

#pragma once

#include <string>

#include "engine/iteration/exchange_count.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::app {

/// Whether steps are exchanged; where not all phases are that could be, which ones are, why others
/// are not, and what helps; and why other steps are not: one line without its end. Empty where no
/// encoder has several replicas and nobody asks for it. `asked`: `balancer.exchange`.
std::string exchange_text(const ParallelPlan& plan, const std::string& asked,
                          const engine::ExchangeCount& count);

}  // namespace troupe::app
