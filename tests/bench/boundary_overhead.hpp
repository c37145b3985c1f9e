// What the rows that go from encoders to the llm, and their gradients, add to a step whose phases
// are dealt to all ranks, by the planner and the simulator.
//
// Pure and deterministic.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/iteration/phase_exchange.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/cost/profile.hpp"

namespace troupe::bench {

/// How large stages are, in which unit ever work is.
struct StageSizes {
  double stage_ms = 0;       ///< Of a stage's mean microbatch, forward and backward; > 0.
  double rows = 0;           ///< That an encoder makes of its mean microbatch; > 0.
  std::int64_t columns = 0;  ///< Of these, in bf16.
};

/// A step under `three-phase`, with links of these speeds and with links that take no time.
struct BoundaryStep {
  double step_ms = 0;
  double alone_ms = 0;

  double overhead() const { return step_ms / alone_ms - 1; }  ///< A share of the step alone.
};

/// `works`: per module group. `microbatches`: per replica of the plan.
///
/// Errors: as `plan_iteration` and `simulate`.
/// REQUIRES: a plan in which each group is one module, in the model's order, and each replica one
/// stage; every group has microbatches with work; no samples in pieces.
Result<BoundaryStep> boundary_step(const ParallelPlan& plan,
                                   std::span<const engine::PhaseWork> works,
                                   const std::vector<MicrobatchList>& microbatches,
                                   const StageSizes& sizes, const scheduler::DeviceSpeeds& speeds);

}  // namespace troupe::bench
