// Where the time of a simulated step goes: work, and what is left of it. Pure.

#pragma once

#include <span>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::scheduler {

/// Compute of a phase, the work of one module group, without updates: of a replica what its busiest
/// device takes.
struct PhaseTime {
  double largest_ms = 0;  ///< Of the replica that takes longest.
  double even_ms = 0;     ///< Of each, were the same work shared out by their speeds.

  double imbalance_ms() const { return largest_ms - even_ms; }  ///< >= 0 but for rounding.
};

/// A step as the device sees it whose stages have most to do (of several the first): its work is a
/// bound that no order of the plan can beat, and it waits for the rest. `work_ms`, `fill_ms`,
/// `boundary_ms` and `rest_ms` add up to the step. Imbalance of a phase is in `work_ms`, where this
/// device works for the phase, else in `fill_ms`, as far as it waits for it; so `phases` stand
/// beside the sum.
struct StepBreakdown {
  double work_ms = 0;  ///< Compute and updates of its stages.
  /// It waits for compute elsewhere: the pipeline fills, drains or has a bubble. Also while rows
  /// are on their way between stages of one module.
  double fill_ms = 0;
  /// It waits for what has been sent and is on its way: rows from one module to the next where
  /// these stand apart, their gradients, content of samples.
  double boundary_ms = 0;
  /// Sums of gradients, commit, moves to host memory and back, updates on standby; waits for these,
  /// and what others do after its own end.
  double rest_ms = 0;
  std::vector<PhaseTime> phases;  ///< Per module group.
};

/// Takes a step apart. `speeds`: of each replica of the plan, > 0; ratios within a group matter.
/// Cost: O(events + stages x devices of a stage).
/// REQUIRES: a simulation of this iteration that completed, with its events recorded.
StepBreakdown break_down(const ParallelPlan& plan, const IterationPlan& iteration,
                         const SimulatedStep& step, std::span<const double> speeds);

}  // namespace troupe::scheduler
