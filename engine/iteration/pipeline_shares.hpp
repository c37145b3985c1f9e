// What the prediction of a batch teaches about the speed of each pipeline: what training and
// simulated training deal later batches by. Pure.

#pragma once

#include <vector>

#include "engine/iteration/microbatching.hpp"
#include "engine/iteration/pipeline_speeds.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::engine {

/// Per pipeline the work of its samples and of its busiest device; zeros where nothing is
/// predicted, and but for the llm where encoders have worked for other pipelines.
std::vector<PipelineSpeeds::Share> shares_of(const ParallelPlan& plan,
                                             const Prediction& prediction);

}  // namespace troupe::engine
