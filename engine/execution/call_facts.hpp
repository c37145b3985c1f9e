// What the machine of a job says about sums by NCCL, before the job begins: whether its devices can
// call it.

#pragma once

#include "runtime/job/cluster.hpp"
#include "scheduler/simulate/sum_choice.hpp"

namespace troupe::engine {

/// Of the job's local nodes. Loads NCCL where their devices could call it; it stays loaded.
scheduler::CallFacts call_facts(const job::Cluster& cluster);

}  // namespace troupe::engine
