// What a planner has learned, as a value that outlives it: saved with a job's progress, and taken
// up by the planner of a run that goes on or of a changed layout.
//
// On the same layout a planner goes on exactly where the other one was. On another one speeds begin
// anew, as they are those of devices; what was learned of a module holds for every stage that runs
// it, the more the oftener it was measured, and watching begins anew.
//
// Pure.

#pragma once

#include "engine/learning/cost_correction.hpp"
#include "engine/learning/stage_speeds.hpp"
#include "runtime/vocabulary/learned_costs.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::engine {

/// The stages of a layout, without speeds.
std::vector<LearnedStage> learned_stages(const ParallelPlan& plan);

/// What of `before` holds for this layout, with this layout's stages.
LearnedCosts carried_over(const LearnedCosts& before, const ParallelPlan& plan);

/// All that was learned; `correction` may be null.
LearnedCosts save_learned(const ParallelPlan& plan, const StageSpeeds& speeds,
                          const CostCorrection* correction);

/// Goes on with what holds of it for this layout; `correction` may be null. Nothing where nothing
/// was learned.
void restore_learned(const LearnedCosts& before, const ParallelPlan& plan, StageSpeeds& speeds,
                     CostCorrection* correction);

}  // namespace troupe::engine
