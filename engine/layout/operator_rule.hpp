// Which operators a job lets LibTorch take on its accelerators, and what that costs, for whoever
// reads a plan or a log.
//
// Pure.

#pragma once

#include <optional>

#include "runtime/job/job.hpp"
#include "scheduler/layout/auto_layout.hpp"

namespace troupe::engine {

/// What `train.deterministic` means where the job trains: `deterministic operators` or `any
/// operators`, and why that matters. None on CPUs, whose operators have one order each.
std::optional<scheduler::LayoutReason> operator_rule(const job::Job& job);

}  // namespace troupe::engine
