// What the prediction of a batch teaches about the speed of each pipeline: what training and
// simulated training deal later batches by, and what slow nodes make of it. Pure.

#pragma once

#include <vector>

#include "engine/iteration/microbatching.hpp"
#include "engine/iteration/node_times.hpp"
#include "engine/iteration/pipeline_speeds.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::engine {

/// Per pipeline the work of its samples and of its busiest device; zeros where nothing is
/// predicted, and but for the llm where encoders have worked for other pipelines.
std::vector<PipelineSpeeds::Share> shares_of(const ParallelPlan& plan,
                                             const Prediction& prediction);

/// Per pipeline: how many times as long its busiest device takes where nodes take `times` as long.
/// `stage_ms`: per stage of the plan, what it takes where none does, which shows who would be the
/// busiest; empty, or a pipeline's all 0: as much as any other. `llm`: stages of the llm alone.
std::vector<double> times_of_pipelines(const ParallelPlan& plan, std::vector<double> stage_ms,
                                       const NodeTimes& times, bool llm);

}  // namespace troupe::engine
