// Ranks of a group that wait for each other between phases, as where each gathers what the others
// keep of its parameters (ZeRO3 in hybrid groups, OrchMLLM section 8.1), which Troupe does not do.
//
// Pure. In print they wait in every layer; here where encoders' forwards, the llm's, its backwards
// and the encoders' are through.

#pragma once

#include <cstddef>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::bench {

/// Adds messages without rows to a plan for the simulator: before each phase but the first every
/// device tells the first one of its group that it comes, which then answers all. Groups are as
/// many devices in a row, the last one may have fewer.
///
/// REQUIRES: every device has a stage and runs its phases one after the other (`three-phase`).
void wait_in_groups(const ParallelPlan& plan, std::size_t group_size, IterationPlan& iteration);

}  // namespace troupe::bench
